"""The records that a store holds, as a recording begins with them, and all of them. Loads no numpy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ..core.bus import Published
from ..core.store import Store
from ..records import Record


def current_records(store: Store) -> Iterator[Published]:
    """Return the current records of a store in an order in which they can be folded again.

    A recording begins with them: without them nothing says which node, GPU or rank its metrics belong to. Their `rx`
    lies before the recording. The entities are listed now; the store may change before the records are read.
    """
    records = chain(
        (store.console,),
        (part for node in store.nodes.values() for part in (node.state, node.node, node.host, node.cost)),
        (part for gpu in store.gpus.values() for part in (gpu.info, gpu.gpu, gpu.digest)),
        store.gpu_links.values(), store.gpu_processes.values(), store.nics.values(), store.links.values(),
        store.inventories.values(), store.settings.values(), store.capacities.values(), store.rank_settings.values(),
        (part for rank in store.ranks.values() for part in (rank.rank, rank.stat, rank.place)),
        store.processes.values(), store.endings.outputs.values(),
        (finding for finding in store.findings.values() if finding.cleared_at is None),
    )  # fmt: skip
    return (record for record in records if isinstance(record, Record))


def all_records(store: Store) -> Iterator[Published]:
    """Yield every record that a store holds, each once."""
    seen: set[tuple[str, int]] = set()
    held: list[Record] = [record for _, record in store.events]
    for table in (store.clocks.nodes, store.clocks.windows, store.clocks.snapshots):
        held += [record for records in table.values() for record in records]
    held += [*store.clocks.sources.values(), *store.clocks.costs.values(), *store.clocks.gpus.values()]
    for capture in store.captures.values():
        held += [*capture.stacks, *capture.earlier, *capture.collectives, *capture.groups]
    for record in (*current_records(store), *held, *store.findings.values()):
        identity = (record.agent, record.seq)
        if identity not in seen:
            seen.add(identity)
            yield record  # type: ignore[misc]
