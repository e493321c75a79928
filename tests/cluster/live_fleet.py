"""A fleet inside the test process, with all of its records, and waiting for conditions on them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gconsole.config import load
from gconsole.core.bus import Hub, Published
from gconsole.core.store import Store
from gconsole.fleet.fleet import Fleet
from gconsole.monitor.digest_rules import digest_rules
from gconsole.records import Gap, NodeState


class LiveFleet:
    """A running fleet with its store, and all records in the order they passed the hub."""

    def __init__(self, fleet: Fleet, hub: Hub, store: Store) -> None:
        self.fleet, self.hub, self.store = fleet, hub, store
        self.records: list[Published] = []
        hub.subscribe(self._keep)

    def _keep(self, records: Sequence[Published]) -> None:
        self.records += records

    async def until(self, condition: Callable[[], Any], deadline_s: float = 90.0) -> float:
        """Wait until a condition holds; the elapsed time in seconds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < deadline_s, f"not within {deadline_s:g} s; states: {self.states()}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def sampled(self, deadline_s: float = 90.0) -> None:
        """Wait until every node has sent its first full tick."""
        await self.until(lambda: all(node_store.cost for node_store in self.store.nodes.values()), deadline_s)

    def state(self, node: str) -> str | None:
        node_store = self.store.nodes.get(node)
        return node_store.state.state if node_store and node_store.state else None

    def states(self) -> dict[str, Any]:
        return {
            node_store.name: (node_store.state.state, node_store.state.error)
            for node_store in self.store.nodes.values()
            if node_store.state
        }

    def history(self, node: str) -> list[str]:
        """The states of a node, without consecutive duplicates."""
        reported = [r.state for r in self.records if isinstance(r, NodeState) and r.node == node]
        return [state for i, state in enumerate(reported) if i == 0 or reported[i - 1] != state]

    def seqs(self, node: str) -> dict[str, list[int]]:
        """Sequence numbers of the records of each incarnation of a node's agent, in order of arrival."""
        seqs: dict[str, list[int]] = {}
        for record in self.records:
            if record.node == node and record.agent != self.hub.console_id:
                seqs.setdefault(record.agent, []).append(record.seq)
        return seqs

    def gaps(self, node: str) -> list[Gap]:
        return [r for r in self.records if isinstance(r, Gap) and r.node == node]


@asynccontextmanager
async def started_fleet(hosts: Path, **flags: object) -> AsyncIterator[LiveFleet]:
    """The fleet of a hosts file; `agent_linger_s=60` overrides `agent.linger_s`."""
    config = load(str(hosts), flags={key.replace("_", ".", 1): str(value) for key, value in flags.items()})
    hub = Hub()
    store = Store()
    hub.subscribe(store.apply)
    fleet = Fleet(config, hub, digest_rules=digest_rules)
    watching = LiveFleet(fleet, hub, store)
    await fleet.start()
    try:
        yield watching
    finally:
        await fleet.stop()
