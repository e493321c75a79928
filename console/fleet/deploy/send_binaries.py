"""Sends binaries to nodes: py-spy, in the background after the first sample."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from ...core.bus import Hub
from ...records import Log
from ...text.logs import internal_error
from ...transport import errors
from ..node_link import NodeLink
from . import binaries

#: Nodes that receive py-spy at once: 2 MB each over the console's shared uplink.
AT_ONCE = 8
#: Seconds after a node's first sample: other nodes are still logging in, and looking for py-spy hashes 8 MB.
DELAY_S = 2.0


class Staging:
    """`staged` of `expected` nodes have py-spy; the header shows it while they differ."""

    def __init__(self, hub: Hub, offered: binaries.Binaries) -> None:
        self.expected = 0
        self.staged = 0
        self._hub, self._binaries = hub, offered
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stages: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by node: its agent and the staging task
        self._is_urgent = asyncio.Event()  # set when a capture waits: no delay
        self._done: dict[str, str] = {}  # by node: the agent that has or will get it
        self._packing: dict[tuple[str, str], asyncio.Task[bytes]] = {}

    def send_now(self, link: NodeLink, name: str) -> None:
        """Answer a hello's request: the binary, or why it is not available."""
        self._run(partial(self._send, link, name), link)

    def stage_py_spy(self, link: NodeLink) -> None:
        """Offer py-spy to an agent that has sampled; nothing is sent if the node has it cached."""
        node, agent = link.node.name, link.agent_id
        if self._done.get(node) == agent:
            return
        self._done[node] = agent
        self.expected += 1
        self._stages[node] = (agent, self._run(partial(self._stage, link), link))

    async def settle(self, link: NodeLink, timeout_s: float) -> None:
        """Wait until a node has py-spy, cannot get it, or `timeout_s` has passed."""
        self._is_urgent.set()
        agent, stage = self._stages.get(link.node.name, ("", None))
        if stage and agent == link.agent_id:
            await asyncio.wait({stage}, timeout=timeout_s)

    def _run(self, work: Callable[[], Awaitable[None]], link: NodeLink) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work, link), name=f"stage {link.node.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[None]], link: NodeLink) -> None:
        try:
            await work()  # created here so that an early cancel leaves no unawaited coroutine
        except Exception as error:  # noqa: BLE001 - show bugs at the node instead of ending the task silently
            text = internal_error(error, f"the transfer of a binary to {link.node.name}")
            self._warn(link, f"cannot send a binary to {link.node.name}: {text}")

    def _warn(self, link: NodeLink, text: str, try_: str = "") -> None:
        self._hub.publish_own(Log(node=link.node.name, source="console", severity="warning", text=text, try_=try_))

    async def _stage(self, link: NodeLink) -> None:
        agent = link.agent_id
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DELAY_S):
                await self._is_urgent.wait()
        try:
            async with self._slots:
                await self._stage_py_spy(link)
        except errors.Lost:
            self.expected -= 1
            if self._done.get(link.node.name) == agent:
                del self._done[link.node.name]  # the node's state says why; retried on reconnect
        except errors.FleetError as error:
            self.expected -= 1
            self._warn(link, f"cannot send py-spy to {link.node.name}: {error.text}", error.try_)
        else:
            self.staged += 1

    async def _stage_py_spy(self, link: NodeLink) -> None:
        offer = {binaries.PY_SPY: self._binaries.offer(binaries.PY_SPY)}
        wanted = await link.request("offer", offer, deadline_s=15.0)
        if isinstance(wanted, list) and binaries.PY_SPY in wanted:
            await self._send(link, binaries.PY_SPY)
            await link.request("settled", {"name": binaries.PY_SPY}, deadline_s=120.0)

    async def _send(self, link: NodeLink, name: str) -> None:
        binary = self._binaries.get(name, link.arch)
        if binary is None:
            link.send_problem(name, f"the console has no {name} for {link.arch}")
            return
        encoding = "xz" if link.has_lzma else "zlib"
        try:
            packed = await self._packed(binary, encoding)
        except binaries.UnreadableBinary as error:
            link.send_problem(name, f"the console cannot read its own {name}: {error}")
            return
        link.send_blob(name, encoding, packed)

    async def _packed(self, binary: binaries.Binary, encoding: str) -> bytes:
        """The compressed binary, computed once for all nodes."""
        key = (binary.digest, encoding)
        if key not in self._packing:
            self._packing[key] = asyncio.create_task(asyncio.to_thread(binary.packed, encoding))
        return await asyncio.shield(self._packing[key])

    async def close(self) -> None:
        """Cancel all transfers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
