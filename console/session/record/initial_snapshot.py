"""What is known already when a recording begins: without it, nobody could tell later whose figures it holds."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.bus import Published
from ...core.store import Store
from ...records import Record


def known(store: Store) -> Iterator[Published]:
    """The current records of a store, in an order in which they can be folded; `rx` lies before now."""
    found = (
        store.console,
        *(part for now in store.nodes.values() for part in (now.state, now.node, now.host, now.cost)),
        *(part for card in store.gpus.values() for part in (card.info, card.gpu, card.digest)),
        *store.gpu_links.values(), *store.gpu_processes.values(), *store.nics.values(), *store.links.values(),
        *(part for rank in store.ranks.values() for part in (rank.rank, rank.stat)),
        *store.processes.values(),
        *(finding for finding in store.findings.values() if finding.cleared_at is None),
    )  # fmt: skip
    yield from (record for record in found if isinstance(record, Record))
