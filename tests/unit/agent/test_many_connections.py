"""Resource leaks of a lingering agent over hundreds of connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lingering_agent import Agent, until

#: Tolerated change of the number of threads or descriptors; a leak per connection would be hundreds.
FEW = 10


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="requires /proc")
def test_lingering_agent_leaks_nothing_over_two_hundred_connections(agent: Agent) -> None:
    agent.meet(until_seq=60)  # every sampler has started and reported
    for _ in range(20):
        agent.meet()
    before = agent.took()
    for number in range(200):
        agent.meet(abruptly=number % 2 == 0)
    until(
        lambda: agent.took().threads < before.threads + FEW and agent.took().descriptors < before.descriptors + FEW,
        lambda: f"{before} before, {agent.took()} now",
    )  # the last reader and writer threads have seen the end of their connections
    assert agent.took().rss_bytes - before.rss_bytes < 4 << 20
