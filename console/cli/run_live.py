"""A fleet for as long as one `gconsole run` command lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from ..config import Config
from ..core.bus import Hub
from ..core.job_protocol import is_away
from ..core.store import Store
from ..fleet import jobs
from ..fleet.fleet import Fleet
from ..headless import batch
from ..launch.format import stop_words
from ..launch.pending_stops import PendingStops
from ..monitor.finding_tracker import FindingTracker
from ..runtime import Console
from ..text.sanitize import printable

#: Between TERM and KILL, where nobody said otherwise.
STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class Live:
    """What such a command works with."""

    config: Config
    hub: Hub
    store: Store
    fleet: Fleet
    findings: FindingTracker

    @property
    def environments(self) -> dict[str, tuple[str, str]]:
        """What every process of a node must carry in its environment to be taken for one of it."""
        return {node.name: node.process_filter for node in self.config.nodes if node.process_filter}

    async def until(self, condition: Callable[[], bool], deadline_s: float | None = None) -> bool:
        """Wait until something in the store is true; False where it is not in time."""
        began = time.monotonic()
        while not condition():
            if deadline_s is not None and time.monotonic() - began > deadline_s:
                return False
            await asyncio.sleep(batch.LOOK_S)
        return True


async def _end_what_is_owed(live: Live) -> None:
    """Nodes that were away when this person stopped a job, and are back, end their part of it now.

    `[console] read_only` is not asked: it is the order that was confirmed then, and no other one.
    """
    owed = PendingStops.of_cluster(live.config.cluster)
    for job, nodes in owed.orders.items():
        back = [node for node in nodes if (link := live.fleet.links.get(node)) and link.state == "ok"]
        answers = await jobs.stop(live.fleet.links, job, back, STOP_GRACE_S) if back else {}
        for node, answer in answers.items():
            words = printable(f"gconsole: {node} was away when {job} was stopped; now: {stop_words(answer)}")
            click.echo(words, err=True)
        owed.set(job, tuple(node for node in nodes if node not in back or is_away(answers.get(node))))


@asynccontextmanager
async def live(config: Config, *, allow_run: bool = False) -> AsyncIterator[Live]:
    """Connect to every node; it begins once each has sampled or failed, and ends orderly.

    `allow_run` only for the two commands whose whole point it is to start or stop a job, and which ask first.
    """
    console = Console(config, store=Store(), allow_run=allow_run, probe_clocks=False)
    found = Live(config, console.bus, console.store, console.fleet, console.findings)
    async with console.running():
        await found.until(lambda: batch.is_settled(console.store), batch.CONNECT_S)
        await console.findings.evaluate()
        await _end_what_is_owed(found)
        yield found
