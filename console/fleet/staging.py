"""Sends binaries to nodes: psutil at once, py-spy in the background after the first sample, a few nodes at a time."""

from __future__ import annotations

import asyncio
import lzma
from typing import Any

from ..hub import Hub
from ..records import Log
from . import assets, failures
from .link import Link

#: Nodes that receive py-spy at the same time: 2 MB each, and the console's own uplink is shared.
AT_ONCE = 8


class Staging:
    """`staged` of `expected` nodes have py-spy; the header shows it while they differ."""

    def __init__(self, hub: Hub, offered: assets.Assets) -> None:
        self.expected = 0
        self.staged = 0
        self._hub, self._assets = hub, offered
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: set[str] = set()
        self._packing: dict[tuple[str, str], asyncio.Task[bytes]] = {}

    def send_now(self, link: Link, name: str) -> None:
        """Answer what a hello wanted: the binary, or why there is none."""
        self._run(self._send(link, name), link)

    def stage_py_spy(self, link: Link) -> None:
        """Offer py-spy to an agent that has sampled once; nothing travels where the node's cache has it."""
        if link.agent_id in self._done:
            return
        self._done.add(link.agent_id)
        self.expected += 1
        self._run(self._stage(link), link)

    def _run(self, work: Any, link: Link) -> None:
        task = asyncio.create_task(work, name=f"stage {link.node.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stage(self, link: Link) -> None:
        async with self._places:
            try:
                offer = {assets.PY_SPY: self._assets.offer(assets.PY_SPY)}
                wanted = await link.request("offer", offer, deadline_s=15.0)
                for name in wanted:
                    await self._send(link, name)
                    await link.request("settled", {"name": name}, deadline_s=120.0)
            except failures.FleetError as error:
                self._hub.say(
                    Log(
                        node=link.node.name, source="console", severity="warning", try_=error.try_,
                        text=f"py-spy could not be brought to {link.node.name}: {error.text}",
                    )
                )
                return
        self.staged += 1

    async def _send(self, link: Link, name: str) -> None:
        asset = self._assets.get(name, link.arch)
        assert asset is not None, "an agent wants only what was offered for its architecture"
        encoding = "xz" if link.has_lzma else "zlib"
        try:
            packed = await self._packed(asset, encoding)
        except (OSError, lzma.LZMAError, StopIteration) as error:
            link.send_problem(name, f"the console cannot read its own {name}: {error}")
            return
        link.send_blob(name, encoding, packed)

    async def _packed(self, asset: assets.Asset, encoding: str) -> bytes:
        """The binary as it travels, compressed once however many nodes want it."""
        key = (asset.digest, encoding)
        if key not in self._packing:
            self._packing[key] = asyncio.create_task(asyncio.to_thread(asset.packed, encoding))
        return await asyncio.shield(self._packing[key])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
