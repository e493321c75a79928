"""Which settings a link sends after the hello: a new agent has those of its start frame, a lingering one older ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from quiet_channel import QuietChannel

from gconsole.config.model import NodeConfig
from gconsole.config.sections import WatchConfig
from gconsole.core.bus import Hub
from gconsole.fleet.node_link import NodeLink
from gconsole.transport.transport import Receiver

FRESH, LINGERING = False, True


class _Node(QuietChannel):
    """A node that greets after `before_hello`; also the channel, which keeps what is sent."""

    def __init__(self, resumed: bool, before_hello: Callable[[], None]) -> None:
        self.sent = b""
        self.is_served = asyncio.Event()  # the first ping follows the settings
        self._resumed, self._before_hello = resumed, before_hello
        self._end: Callable[[], None] = lambda: None

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        def greet() -> None:
            self._before_hello()
            hello = {"protocol": [1, 1], "agent": "a", "arch": "x86_64", "resumed": self._resumed}
            receiver.on_bytes(json.dumps({"gconsole": hello}).encode() + b"\n")

        self._end = lambda: receiver.on_end(0, None)
        asyncio.get_running_loop().call_later(0.01, greet)
        return self

    def write(self, data: bytes) -> None:
        self.sent += data
        if b'{"ping":' in data:
            self.is_served.set()
        if b'{"stop":' in data:
            asyncio.get_running_loop().call_soon(self._end)

    def frames(self) -> list[dict[str, Any]]:
        """What was sent after the start frame, without pings."""
        after = self.sent.partition(b'{"start":')[2].splitlines()[1:]
        return [frame for frame in map(json.loads, after) if "ping" not in frame and "stop" not in frame]


async def sent_to(resumed: bool, before_hello: Callable[[NodeLink], None] = lambda link: None) -> list[dict[str, Any]]:
    node = _Node(resumed, lambda: before_hello(link))
    link = NodeLink(NodeConfig(name="node1"), cast(Any, node), Hub(), lambda link, name: None, snapshot_period_ms=500)
    link.start()
    async with asyncio.timeout(60):
        await node.is_served.wait()
    await link.stop()
    return node.frames()


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    return [next(iter(frame)) for frame in frames]


async def test_new_agent_is_sent_nothing_that_its_start_frame_had() -> None:
    assert await sent_to(FRESH) == []


async def test_lingering_agent_is_sent_all_settings_that_it_follows() -> None:
    frames = await sent_to(LINGERING)
    assert kinds(frames) == ["snapshots", "watch", "traffic"]
    assert frames[0] == {"snapshots": 500} and frames[2] == {"traffic": []}


@pytest.mark.parametrize("what", ["period", "watch"])
async def test_settings_that_changed_while_the_agent_started_are_sent(what: str) -> None:
    def change(link: NodeLink) -> None:
        if what == "period":
            link.read_clocks_every(100)
        else:
            link.follow_watch(msgspec.structs.replace(WatchConfig(), every_s=7.0))

    frames = await sent_to(FRESH, change)
    assert {"snapshots": 100 if what == "period" else 500} in frames
    assert [frame["watch"]["watch_every_s"] for frame in frames if "watch" in frame][-1] == (
        7.0 if what == "watch" else WatchConfig().every_s
    )


async def test_order_of_traffic_from_before_the_hello_is_sent() -> None:
    frames = await sent_to(FRESH, lambda link: link.measure_traffic([(7, 8)]))
    assert {"traffic": [[7, 8]]} in frames and "snapshots" not in kinds(frames)
