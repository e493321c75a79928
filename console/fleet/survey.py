"""Ask every node one thing, once: connect, ask, let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..config.model import Config
from ..hub import Hub
from ..records import Failure
from .failures import FleetError
from .fleet import Fleet
from .link import Link


@dataclass(frozen=True)
class Answer:
    """What one node said, or why it said nothing."""

    node: str
    value: Any = None
    failure: Failure | None = None
    rtt_ns: int | None = None


async def survey(
    config: Config, verb: str, args: dict[str, Any], deadline_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> list[Answer]:
    """The answer of every node, in the order of the configuration; `progress(done, total)` is called after each."""
    fleet = Fleet(config, Hub())
    done = 0

    async def one(link: Link) -> Answer:
        nonlocal done
        try:
            await link.first_word()
            value = await link.request(verb, args, deadline_s)
            return Answer(link.node.name, value=value, rtt_ns=link.rtt_ns)
        except FleetError as error:
            return Answer(link.node.name, failure=error.as_failure())
        finally:
            done += 1
            if progress:
                progress(done, len(fleet.links))

    await fleet.start()
    try:
        return list(await asyncio.gather(*(one(link) for link in fleet.links.values())))
    finally:
        await fleet.stop()
