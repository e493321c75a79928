"""When a node is pinged: into silence, but not while the console is late, when all nodes seem silent."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub
from gconsole.fleet.node_link import FIRST_PINGS, NodeLink
from gconsole.transport.transport import Receiver


class _Node:
    """A node that greets and is silent then; also its channel."""

    def __init__(self) -> None:
        self.pings = 0
        self.is_pinged = asyncio.Event()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        hello = {"protocol": [1, 1], "agent": "a", "arch": "x86_64", "resumed": False}
        greeting = json.dumps({"gconsole": hello}).encode() + b"\n"
        asyncio.get_running_loop().call_later(0.01, receiver.on_bytes, greeting)
        return self

    def write(self, data: bytes) -> None:
        if b'{"ping":' in data:
            self.pings += 1
            self.is_pinged.set()

    def unacked(self, silent_s: float) -> None:
        return None

    async def answers(self, node: NodeConfig | None = None) -> bool | None:
        return None

    def is_relay_late(self) -> bool:
        return False

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("silent_s", "pinged_s", "is_late", "pings"),
    [(1.5, 2, False, 1), (1.5, 2, True, 0), (0.5, 2, False, 0), (0.5, 11, False, 1), (0.5, 11, True, 1)],
    ids=["silent", "silent, but the console is late", "sends", "clock", "clock, console late"],
)
async def test_node_is_pinged_into_silence_unless_the_console_is_late(
    silent_s: float, pinged_s: float, is_late: bool, pings: int
) -> None:
    node = _Node()
    link = NodeLink(NodeConfig(name="node1"), cast(Any, node), Hub(), lambda link, name: None)
    link.start()
    try:
        async with asyncio.timeout(60):
            await node.is_pinged.wait()
        connection, now = link._connection, time.monotonic()
        assert connection is not None
        link._pings, link._pinged_at, connection.last_received = FIRST_PINGS, now - pinged_s, now - silent_s
        node.pings = 0
        link._check(connection, cast(Any, SimpleNamespace(watch=lambda: None)), is_late=is_late)
        assert node.pings == pings
    finally:
        await link.stop()
