"""Failure reported when an agent exits: exit status, last output, and a next step."""

from __future__ import annotations

import pytest

from gconsole.config import NodeConfig
from gconsole.fleet.agent_connection import LastWords, explain
from gconsole.transport.errors import AgentCrashed

AGENT = NodeConfig(name="node018").agent


def output_tail(text: bytes = b"") -> LastWords:
    words = LastWords()
    words.add_error(text)
    return words


@pytest.mark.parametrize("status", [-9, 137])
def test_killed_agent_points_to_the_kernel_log(status: int) -> None:
    failure = explain(status, None, output_tail(), AGENT, greeted=True)
    assert isinstance(failure, AgentCrashed) and failure.text == f"agent exited with status {status}"
    assert "dmesg" in failure.try_


def test_crashed_agent_shows_its_output_and_asks_for_a_report() -> None:
    failure = explain(1, None, output_tail(b"MemoryError\n"), AGENT, greeted=True)
    assert isinstance(failure, AgentCrashed)
    assert failure.text == "agent exited with status 1 (output: MemoryError)"
    assert "report this output" in failure.try_


def test_agent_that_did_not_start_names_the_interpreter_to_check() -> None:
    failure = explain(1, None, output_tail(b"This account is not available\n"), AGENT, greeted=False)
    assert isinstance(failure, AgentCrashed)
    assert failure.text == "agent failed to start (status 1) (output: This account is not available)"
    assert AGENT.python in failure.try_ and "login script" in failure.try_
