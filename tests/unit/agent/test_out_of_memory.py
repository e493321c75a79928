"""Without memory, every part of the agent fails; none of them stays away once there is memory again."""

from __future__ import annotations

import contextlib
import json
import queue
import random
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from lingering_agent import Agent, until

from gconsole_remote.agent import sampler_thread
from gconsole_remote.agent.outbox import Outbox
from gconsole_remote.agent.sampler_run import SamplerRun
from gconsole_remote.agent.sampler_thread import SamplerThread
from gconsole_remote.samplers.base import Sampler

#: Times that the agent is without memory, at random instants.
TIMES = 3
#: Equal counts of threads in a row, 0.05 s apart, after which the number is settled.
SETTLED = 60


class Steady(Sampler):
    """Ticks every millisecond."""

    name, interval_s = "steady", 0.001

    def __init__(self) -> None:
        super().__init__(None)
        self.starts = 0
        self.ticks: queue.Queue[float] = queue.Queue()

    def start(self) -> None:
        self.starts += 1

    def tick(self, now: float):
        self.ticks.put(now)
        return [("host", {})]


class Failing:
    """Stands for the agent: its next call of one name fails, as without memory."""

    def __init__(self, where: str) -> None:
        self.ended, self.epoch, self.digests = threading.Event(), time.monotonic(), None
        self.outbox = SimpleNamespace(post=lambda facts: self._fail("post"))
        self.where, self.failures = where, 0

    def report_crash(self, what: str) -> None:
        self._fail("report_crash")

    def _fail(self, where: str) -> None:
        if where == "post" or where == self.where:
            self.failures += 1
            if self.failures < 4:
                raise MemoryError


@pytest.mark.parametrize("where", ["post", "report_crash"])
def test_sampler_goes_on_after_its_records_or_its_failure_could_not_be_queued(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_thread, "RETRY_S", 0.001)
    agent, sampler = Failing(where), Steady()
    thread = SamplerThread(SamplerRun(sampler, agent))
    thread.start()
    for _ in range(10):
        sampler.ticks.get(timeout=60)
    agent.ended.set()
    thread.join(60)
    assert not thread.is_alive() and sampler.starts == 1 and agent.failures >= 4


def test_records_without_memory_take_no_number() -> None:
    outbox = Outbox(1 << 20, keep=True)
    turn = outbox.rewind(0)
    outbox.post([("host", {"a": 1})])
    outbox._chunks[-1].data, data = None, outbox._chunks[-1].data  # type: ignore[assignment]  # appending to it fails
    with pytest.raises(TypeError):
        outbox.post([("host", {"a": 2}), ("host", {"a": 3})])
    outbox._chunks[-1].data = data
    outbox.post([("host", {"a": 4})])
    lines = [json.loads(line) for line in (outbox.next_bytes(turn, 0.0, 0.0) or b"").splitlines()]
    assert [(line["seq"], line["a"]) for line in lines] == [(1, 1), (2, 4)]


def test_frames_and_records_that_could_not_be_taken_are_there_the_next_time() -> None:
    outbox = Outbox(1 << 20, keep=False)
    turn = outbox.rewind(0)
    outbox.control({"pong": 1})
    outbox.post([("host", {"a": 1})])
    outbox._chunks[-1].data, data = None, outbox._chunks[-1].data  # type: ignore[assignment]  # as above
    with pytest.raises(TypeError):
        outbox.next_bytes(turn, 0.0, 0.0)
    outbox._chunks[-1].data = data
    taken = (outbox.next_bytes(turn, 0.0, 0.0) or b"").splitlines()
    assert [json.loads(line).get("seq") for line in taken] == [None, 1]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.end()


@contextlib.contextmanager
def without_memory(pid: int) -> Iterator[None]:
    limits = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, limits)


def _settled_threads(agent: Agent) -> int:
    """The number of its threads once those of its start and of the last connection have ended."""
    counts: list[int] = []

    def is_settled() -> bool:
        counts.append(agent.took().threads)
        return len(counts) >= SETTLED and len(set(counts[-SETTLED:])) == 1

    until(is_settled, lambda: f"the number of threads keeps changing: {counts[-SETTLED:]}")
    return counts[-1]


@pytest.mark.slow
def test_every_sampler_reports_again_after_the_agent_was_without_memory(agent: Agent) -> None:
    kinds = {"agent_cost", "host", "gpu"}
    agent.meet(until_kinds=kinds | {"inventory"})
    threads = _settled_threads(agent)
    for _ in range(TIMES):
        with agent.connected(), without_memory(agent.pid):
            time.sleep(random.uniform(0.5, 2.5))  # whatever fails
        agent.meet(until_kinds=kinds, since_ns=time.time_ns())
    until(lambda: agent.took().threads >= threads, lambda: f"{threads} threads before, {agent.took().threads} now")
