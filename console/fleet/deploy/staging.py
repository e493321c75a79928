"""Sends binaries to nodes: psutil at once, py-spy in the background after the first sample, a few nodes at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from ...core.bus import Hub
from ...records import Log
from ...transport import errors
from ..link import NodeLink
from . import binaries

#: Nodes that receive py-spy at the same time: 2 MB each, and the console's own uplink is shared.
AT_ONCE = 8
#: py-spy waits this long after a node's first sample: others are still logging in, and looking for it hashes 8 MB.
CALM_S = 2.0


class Staging:
    """`staged` of `expected` nodes have py-spy; the header shows it while they differ."""

    def __init__(self, hub: Hub, offered: binaries.Binaries) -> None:
        self.expected = 0
        self.staged = 0
        self._hub, self._assets = hub, offered
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stages: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by node: its agent, and what is done for that
        self._wanted_now = asyncio.Event()  # somebody waits for py-spy: no more calm
        self._done: dict[str, str] = {}  # by node: the agent that has it, or is about to
        self._packing: dict[tuple[str, str], asyncio.Task[bytes]] = {}

    def send_now(self, link: NodeLink, name: str) -> None:
        """Answer what a hello wanted: the binary, or why there is none."""
        self._run(partial(self._send, link, name), link)

    def stage_py_spy(self, link: NodeLink) -> None:
        """Offer py-spy to an agent that has sampled once; nothing travels where the node's cache has it."""
        node, agent = link.node.name, link.agent_id
        if self._done.get(node) == agent:
            return
        self._done[node] = agent
        self.expected += 1
        self._stages[node] = (agent, self._run(partial(self._stage, link), link))

    async def settle(self, link: NodeLink, timeout_s: float) -> None:
        """Wait until a node has py-spy, is known not to get it, or the time is up."""
        self._wanted_now.set()
        agent, stage = self._stages.get(link.node.name, ("", None))
        if stage and agent == link.agent_id:
            await asyncio.wait({stage}, timeout=timeout_s)

    def _run(self, work: Callable[[], Awaitable[None]], link: NodeLink) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watched(work, link), name=f"stage {link.node.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watched(self, work: Callable[[], Awaitable[None]], link: NodeLink) -> None:
        try:
            await work()  # made only here: a task that is cancelled before it starts leaves no coroutine behind
        except Exception as error:  # noqa: BLE001 - a fault of ours must show at its node, not end a task unseen
            self._warn(link, f"a binary could not be brought to {link.node.name}: {type(error).__name__}: {error}")

    def _warn(self, link: NodeLink, text: str, try_: str = "") -> None:
        self._hub.publish_own(Log(node=link.node.name, source="console", severity="warning", text=text, try_=try_))

    async def _stage(self, link: NodeLink) -> None:
        agent = link.agent_id
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALM_S):
                await self._wanted_now.wait()
        try:
            async with self._places:
                await self._bring_py_spy(link)
        except errors.Lost:
            self.expected -= 1
            if self._done.get(link.node.name) == agent:
                del self._done[link.node.name]  # its state says why; one that lingers is asked again when it is back
        except errors.FleetError as error:
            self.expected -= 1
            self._warn(link, f"py-spy could not be brought to {link.node.name}: {error.text}", error.try_)
        else:
            self.staged += 1

    async def _bring_py_spy(self, link: NodeLink) -> None:
        offer = {binaries.PY_SPY: self._assets.offer(binaries.PY_SPY)}
        wanted = await link.request("offer", offer, deadline_s=15.0)
        if isinstance(wanted, list) and binaries.PY_SPY in wanted:
            await self._send(link, binaries.PY_SPY)
            await link.request("settled", {"name": binaries.PY_SPY}, deadline_s=120.0)

    async def _send(self, link: NodeLink, name: str) -> None:
        asset = self._assets.get(name, link.arch)
        if asset is None:
            link.send_problem(name, f"the console has no {name} for {link.arch}")
            return
        encoding = "xz" if link.has_lzma else "zlib"
        try:
            packed = await self._packed(asset, encoding)
        except binaries.Unreadable as error:
            link.send_problem(name, f"the console cannot read its own {name}: {error}")
            return
        link.send_blob(name, encoding, packed)

    async def _packed(self, asset: binaries.Binary, encoding: str) -> bytes:
        """The binary as it travels, compressed once however many nodes want it."""
        key = (asset.digest, encoding)
        if key not in self._packing:
            self._packing[key] = asyncio.create_task(asyncio.to_thread(asset.packed, encoding))
        return await asyncio.shield(self._packing[key])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
