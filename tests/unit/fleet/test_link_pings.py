"""When a node is pinged: into silence, but not while the console is late, when all nodes seem silent."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quiet_channel import QuietChannel

from gconsole.config.model import NodeConfig
from gconsole.config.sections import AgentConfig
from gconsole.core.bus import Hub
from gconsole.fleet.liveness_timer import REPORTED_S
from gconsole.fleet.node_link import FIRST_PINGS, NodeLink
from gconsole.records import AgentCost, NodeState
from gconsole.transport.transport import Receiver

SELDOM = NodeConfig(name="node1", agent=AgentConfig(sample_interval_ms=60_000))


class _Node(QuietChannel):
    """A node that greets, sends one tick, and answers pings; also its channel."""

    def __init__(self) -> None:
        self.pings = 0

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        hello = b'{"gconsole":{"protocol":[1,1],"agent":"a1","arch":"x86_64"}}\n'
        tick = b'{"kind":"agent_cost","seq":1,"t":1,"mono":1,"sample_interval_ms":60000}\n'
        self._send, self._end = receiver.on_bytes, receiver.on_end
        asyncio.get_running_loop().call_soon(self._send, hello + tick)
        return self

    def write(self, data: bytes) -> None:
        if b'{"stop":' in data:
            asyncio.get_running_loop().call_soon(self._end, 0, None)
        for line in data.splitlines():
            if line.startswith(b'{"ping":'):
                self.pings += 1
                pong = {"pong": json.loads(line)["ping"], "t": time.time_ns(), "mono": time.monotonic_ns()}
                asyncio.get_running_loop().call_soon(self._send, json.dumps(pong).encode() + b"\n")


async def linked(node: _Node, states: list[str]) -> NodeLink:
    """A link that is past its first pings; the states of the node are added to `states`."""
    hub = Hub()
    link = NodeLink(SELDOM, cast(Any, node), hub, lambda link, name: None)

    def follow(records: Any) -> None:  # as the fleet does
        states.extend(record.state for record in records if isinstance(record, NodeState))
        if any(isinstance(record, AgentCost) for record in records):
            link.mark_sampled(1.0)

    hub.subscribe(follow)
    link.start()
    await link.wait_for_sample()
    while not node.pings:  # noqa: ASYNC110 - the first ping is no event
        await asyncio.sleep(0.01)
    link._pings = FIRST_PINGS
    return link


@pytest.mark.parametrize(
    ("silent_s", "pinged_s", "has_unread", "pings"),
    [(1.5, 2, False, 1), (1.5, 2, True, 0), (0.5, 2, False, 0), (0.5, 11, False, 1), (0.5, 11, True, 1)],
    ids=["silent", "silent, but the console is late", "sends", "clock", "clock, console late"],
)
async def test_node_is_pinged_into_silence_unless_the_console_has_read_nothing(
    silent_s: float, pinged_s: float, has_unread: bool, pings: int
) -> None:
    node = _Node()
    async with asyncio.timeout(60):
        link = await linked(node, [])
    connection, now = link._connection, time.monotonic()
    assert connection is not None
    link._pinged_at, connection.last_received = now - pinged_s, now - silent_s
    link._liveness_timer.has_unread = has_unread
    node.pings = 0
    link._check(connection, cast(Any, SimpleNamespace(watch=lambda: None)), is_late=has_unread)
    assert node.pings == pings
    await link.stop()


async def test_node_that_sends_seldom_is_not_lost_after_the_console_was_late() -> None:
    """It is pinged again before its silence is judged."""
    node, states = _Node(), list[str]()
    async with asyncio.timeout(60):
        link = await linked(node, states)
        before = node.pings
        time.sleep(REPORTED_S + 1)  # noqa: ASYNC251 - the console is late
        while node.pings < before + 3:  # noqa: ASYNC110 - a ping is no event
            await asyncio.sleep(0.05)
        assert not link._liveness_timer.is_late
    await link.stop()
    assert states[:3] == ["expected", "connecting", "ok"] and "lost" not in states
