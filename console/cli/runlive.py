"""A fleet for as long as one `gconsole run` command lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from .. import __version__, batch
from ..config import Config
from ..findings import Findings
from ..fleet.fleet import Fleet
from ..hub import Hub
from ..jobs.show import stop_words
from ..jobs.state import job_views, stop_owed
from ..records import Console
from ..store import Store

#: Between TERM and KILL, where nobody said otherwise.
STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class Live:
    """What such a command works with."""

    config: Config
    hub: Hub
    store: Store
    fleet: Fleet
    findings: Findings

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
    """Nodes that were away when somebody stopped a job, and are back, end their part of it now."""
    for view in job_views(live.store):
        job, nodes = view.ordered.job, stop_owed(view)
        answers = await live.fleet.stop_job(job, nodes, STOP_GRACE_S) if nodes else {}
        for node, answer in answers.items():
            click.echo(f"gconsole: {node} was away when {job} was stopped; now: {stop_words(answer)}", err=True)


@asynccontextmanager
async def live(config: Config) -> AsyncIterator[Live]:
    """Connect to every node; it begins once each has sampled or failed, and ends orderly."""
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    findings = Findings(hub, config.health)
    hub.say(Console(cluster=config.cluster, version=__version__))
    fleet = Fleet(config, hub)
    found = Live(config, hub, store, fleet, findings)
    await fleet.start()
    try:
        await found.until(lambda: batch.is_settled(store), batch.CONNECT_S)
        await findings.look()
        await _end_what_is_owed(found)
        yield found
    finally:
        await fleet.stop()
