"""An agent that replies but has stopped sampling is reported and replaced; one that is only late is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.sampling_monitor import FIRST_TICK_S, LATE_INTERVALS, LATE_S, SamplingMonitor
from gconsole.records import AgentCost, NodeState
from gconsole.transport.transport import Receiver

SECOND = 1_000_000_000


@pytest.fixture
def monitor() -> SamplingMonitor:
    """Of an agent whose last tick has just arrived."""
    made = SamplingMonitor(1.0)
    made.on_tick(1.0)
    return made


def test_agent_that_only_answers_pings_is_overdue(monitor: SamplingMonitor) -> None:
    for second in range(int(LATE_S)):
        monitor.on_pong(second * SECOND)
    assert not monitor.is_overdue
    monitor.on_pong(int(LATE_S) * SECOND)
    assert monitor.is_overdue and monitor.silent_s == LATE_S + 1


def test_agent_whose_other_samplers_go_on_is_overdue(monitor: SamplingMonitor) -> None:
    for second in range(int(LATE_S) + 1):
        monitor.on_records(second * SECOND)
    assert monitor.is_overdue


def test_tick_ends_the_lateness(monitor: SamplingMonitor) -> None:
    for second in range(100):
        monitor.on_records(second * SECOND)
        monitor.on_tick(1.0)
    assert not monitor.is_overdue


def test_longer_interval_and_first_tick_have_more_time() -> None:
    monitor = SamplingMonitor(1.0)
    for second in range(int(FIRST_TICK_S)):
        monitor.on_pong(second * SECOND)
    assert not monitor.is_overdue
    monitor.on_tick(60.0)
    for second in range(LATE_INTERVALS * 60):
        monitor.on_pong((1000 + second) * SECOND)
    assert not monitor.is_overdue


def test_agent_that_was_stopped_for_a_minute_is_not_overdue(monitor: SamplingMonitor) -> None:
    monitor.on_pong(SECOND)
    for number in range(60):  # those that waited are answered at once
        monitor.on_pong(61 * SECOND + number)
    assert not monitor.is_overdue


def test_pongs_that_overtake_a_backlog_of_records_are_no_sign_of_missing_ticks(monitor: SamplingMonitor) -> None:
    for second in range(300):  # a capture, made within a second, goes over a slow link
        monitor.on_records(SECOND + second)
        monitor.on_pong((1 + second) * SECOND)
    assert not monitor.is_overdue


class _PartlyDead:
    """Its node ticks once; later it only answers pings, whose clock is ahead by 5 s each."""

    def __init__(self, received: list[dict[str, Any]]) -> None:
        self._received = received
        self._mono_ns = 0

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        self._receiver = receiver
        hello = b'{"gconsole":{"protocol":[1,1],"agent":"a1","arch":"x86_64"}}\n'
        tick = b'{"kind":"agent_cost","seq":1,"t":1,"mono":1,"sample_interval_ms":1000}\n'
        asyncio.get_running_loop().call_soon(receiver.on_bytes, hello + tick)
        channel = mock.MagicMock()
        channel.write = self._write
        channel.unacked.return_value = None
        return channel

    def _write(self, data: bytes) -> None:
        if not data.startswith(b"{"):
            return  # the agent's program
        frame = json.loads(data)
        self._received.append(frame)
        if "ping" in frame:
            for _ in range(int(LATE_S) + 1):
                self._mono_ns += 5 * SECOND
                pong = {"pong": frame["ping"], "t": 1, "mono": self._mono_ns}
                asyncio.get_running_loop().call_soon(self._receiver.on_bytes, json.dumps(pong).encode() + b"\n")

    async def answers(self, node: NodeConfig) -> bool | None:
        return None


async def test_node_whose_agent_no_longer_samples_is_lost_and_its_agent_is_stopped() -> None:
    hub, lost, received = Hub(), asyncio.get_running_loop().create_future(), list[dict[str, Any]]()
    staging: Callable[[NodeLink, str], None] = lambda link, name: None  # noqa: E731
    link = NodeLink(NodeConfig(name="node1"), cast(Any, _PartlyDead(received)), hub, staging)

    def follow(records: Any) -> None:
        for record in records:
            if isinstance(record, AgentCost):
                link.mark_sampled(record.sample_interval_ms / 1e3)
            elif isinstance(record, NodeState) and record.state == "lost" and not lost.done():
                lost.set_result(record)

    hub.subscribe(follow)
    link.start()
    state = await asyncio.wait_for(lost, 60)
    assert state.error.name == "agent_crashed" and "no samples for" in state.error.text
    assert {"stop": True} in received
    await link.stop()
