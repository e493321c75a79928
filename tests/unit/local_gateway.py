"""The gateway's program as a process of this machine, and what receives a node's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gconsole.config.model import NodeConfig
from gconsole.transport.openssh import LocalTransport

DEADLINE_S = 120.0


class Receiver:
    """Keeps what a node sends; `most` pauses its channel after that many bytes."""

    def __init__(self, most: int | None = None) -> None:
        self.data, self.errors = bytearray(), bytearray()
        self.count = 0
        self.ended: tuple[int | None, Exception | None] | None = None
        self.channel: Any = None
        self._most = most

    def on_bytes(self, data: bytes) -> None:
        self.count += len(data)
        self.data = (self.data + data)[-4096:]
        if self._most is not None and self.count > self._most:
            self.channel.pause()

    def on_error_bytes(self, data: bytes) -> None:
        self.errors += data

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        self.ended = exit_status, error


class Outer(LocalTransport):
    """Starts the gateway on this machine; `processes` are all of them."""

    def __init__(self) -> None:
        self.processes: list[Any] = []

    async def open(self, node: NodeConfig, command: str, receiver: Any) -> Any:
        channel: Any = await super().open(node, command, receiver)
        self.processes.append(channel._process)
        return channel


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - bytes of another process
            await asyncio.sleep(0.01)
