"""Ask every node one thing, once: connect, ask, let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..config.model import Config
from ..core.bus import Hub
from .fleet import Fleet
from .link import NodeLink
from .node_reply import NodeReply, request_reply


async def survey(
    config: Config,
    verb: str,
    args: dict[str, Any],
    deadline_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> list[NodeReply]:
    """The answer of every node, in the order of the configuration; `progress(done, total)` is called after each."""
    fleet = Fleet(config, Hub())
    done = 0

    async def one(link: NodeLink) -> NodeReply:
        nonlocal done
        try:
            return await request_reply(link, verb, args, deadline_s, wait=True)
        finally:
            done += 1
            if progress:
                progress(done, len(fleet.links))

    await fleet.start()
    try:
        return list(await asyncio.gather(*(one(link) for link in fleet.links.values())))
    finally:
        await fleet.stop()
