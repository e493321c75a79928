"""Fleet connection for one `gconsole run` command."""

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
from ..launch.state import PendingStops
from ..monitor.finding_tracker import FindingTracker
from ..runtime import Console
from ..text.sanitize import printable

#: Seconds between SIGTERM and SIGKILL for pending stops.
STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class LiveFleet:
    """The connected fleet and its state."""

    config: Config
    hub: Hub
    store: Store
    fleet: Fleet
    findings: FindingTracker

    @property
    def environments(self) -> dict[str, tuple[str, str]]:
        """Per node: the environment variable (name, value) that identifies its processes."""
        return {node.name: node.process_filter for node in self.config.nodes if node.process_filter}

    async def until(self, condition: Callable[[], bool], deadline_s: float | None = None) -> bool:
        """Poll until `condition()`; False after `deadline_s` seconds."""
        began = time.monotonic()
        while not condition():
            if deadline_s is not None and time.monotonic() - began > deadline_s:
                return False
            await asyncio.sleep(batch.POLL_S)
        return True


async def _run_pending_stops(live: LiveFleet) -> None:
    """Stop jobs on nodes that were unreachable when the stop was confirmed.

    Ignores `[console] read_only`: the user confirmed this stop earlier.
    """
    pending = PendingStops.of_cluster(live.config.cluster)
    for job, nodes in pending.orders.items():
        back = [node for node in nodes if (link := live.fleet.links.get(node)) and link.state == "ok"]
        answers = await jobs.stop(live.fleet.links, job, back, STOP_GRACE_S) if back else {}
        for node, answer in answers.items():
            words = printable(f"gconsole: pending stop of {job} on {node}: {stop_words(answer)}")
            click.echo(words, err=True)
        pending.set(job, tuple(node for node in nodes if node not in back or is_away(answers.get(node))))


@asynccontextmanager
async def live(config: Config, *, allow_run: bool = False) -> AsyncIterator[LiveFleet]:
    """Connect to all nodes, wait until each has sampled or failed, disconnect at the end of the block.

    `allow_run` only for start and stop, which ask for confirmation.
    """
    console = Console(config, store=Store(), allow_run=allow_run, probe_clocks=False)
    fleet = LiveFleet(config, console.bus, console.store, console.fleet, console.findings)
    async with console.running():
        await fleet.until(lambda: batch.is_settled(console.store), batch.CONNECT_S)
        await console.findings.evaluate()
        await _run_pending_stops(fleet)
        yield fleet
