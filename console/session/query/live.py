"""What a console that is watching can be asked: its store as tables.

Of what is drawn over time, a row a second of the last minutes, and before them a row each ten seconds (means), at the
console's clock; those rows have the columns that are kept, and null in all others. Beside them stands the newest record
of everything, as it came, and every event, stack and operation that the store still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.bus import Published
from ...core.store import Store
from ...records import KINDS, Record
from ...records.kinds import SPECS, kind_of
from ...records.metrics import HISTORY
from ..record.initial_snapshot import known
from .table_names import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from ...core.metric_history import Known
    from .sources import Tables


@dataclass(frozen=True)
class Kept:
    """What is kept over time of one family, and of each entity what its rows have beside figures."""

    known: Known
    heads: dict[Hashable, dict[str, Any]]

    def told(self) -> NDArray[np.bool_]:
        """At which [instant, entity] anything is known, without the newest: that is there as a record."""
        is_known: NDArray[np.bool_] = np.asarray(~np.isnan(self.known.values).all(axis=2))
        if self.known.keys:
            newest = np.where(is_known, np.arange(len(self.known.t))[:, None], -1).max(axis=0)
            is_known[newest, np.arange(len(self.known.keys))] = False
        return is_known


@dataclass(frozen=True)
class Snapshot:
    """What the store held at one instant: taken where the store lives, read anywhere. A source of tables."""

    records: dict[str, list[Published]]
    history: dict[str, Kept]  # by family

    def tables(self, wanted: Collection[str]) -> Tables:
        import pyarrow as pa

        from .sources import Tables

        found = {}
        for table in wanted:
            parts = [*self._columns(table)]
            if parts:
                found[table] = pa.concat_tables(parts, promote_options="none")
        return Tables(columns=found)

    def _columns(self, table: str) -> Iterator[pa.Table]:
        import pyarrow as pa

        from ..format.to_arrow import to_batch

        if self.records.get(table):
            yield pa.Table.from_batches([to_batch(table, self.records[table])])
        if table in self.history and self.history[table].known.keys:
            yield _curves(table, self.history[table])


def snapshot(store: Store, wanted: Collection[str]) -> Snapshot:
    """These tables of the store, as they are now; copies only what changes."""
    records: dict[str, list[Published]] = {table: [] for table in TABLES if table in wanted}
    for record in records_of(store):
        table = kind_of(record)
        if table in records:
            records[table].append(record)
    found = ((family, history_of(store, family)) for family in HISTORY if family in wanted)
    return Snapshot(records, {family: kept for family, kept in found if kept is not None})


def history_of(store: Store, family: str) -> Kept | None:
    """A copy of what a store keeps of that family over time; None where it keeps nothing."""
    if store.history is None:
        return None
    known = store.history.series[family].known()
    return Kept(known, {key: _head(store, family, key) for key in known.keys})


def records_of(store: Store) -> Iterator[Published]:
    """Every record that a store holds, each once."""
    seen: set[tuple[str, int]] = set()
    held: list[Record] = [record for _, record in store.events]
    for book in (store.clocks.nodes, store.clocks.windows, store.clocks.snapshots):
        held += [record for kept in book.values() for record in kept]
    held += [*store.clocks.sources.values(), *store.clocks.costs.values(), *store.clocks.gpus.values()]
    for capture in store.captures.values():
        held += [*capture.stacks, *capture.collectives, *capture.groups]
    for record in (*known(store), *held, *store.findings.values()):
        name = (record.agent, record.seq)
        if name not in seen:
            seen.add(name)
            yield record  # type: ignore[misc]


def _head(store: Store, family: str, key: Hashable) -> dict[str, Any]:
    """The fields that say which entity a stored figure belongs to; labels of a rank that is gone are left out."""
    spec = SPECS[KINDS[family]]
    head: dict[str, Any] = dict(zip(("node", *spec.key), key if isinstance(key, tuple) else (key,), strict=True))
    labelled: Record | None = None
    if family == "gpu" and (gpu := store.gpus.get(key)) is not None:  # type: ignore[arg-type]
        labelled = gpu.gpu or gpu.info
    elif family == "rank_stat":
        rank = store.ranks.get(key)  # type: ignore[arg-type]
        if rank is None:
            return head
        labelled = rank.rank
    return head | {name: getattr(labelled, name, None) for name in spec.labels}


def _curves(family: str, history: Kept) -> pa.Table:
    """A row an instant and entity that something is known of."""
    import pyarrow as pa

    from ..format.to_arrow import schema_of

    kept = history.known
    at, entity = np.nonzero(history.told())
    t = pa.array(kept.t[at] * 1_000_000_000)
    columns: dict[str, pa.Array] = {"t": t, "rx": t}
    facts = [history.heads[key] for key in kept.keys]
    schema = schema_of(family)
    for name in facts[0]:
        values: Sequence[Any] = [fact.get(name) for fact in facts]
        columns[name] = pa.array(values, schema.field(name).type).take(pa.array(entity))
    for place, name in enumerate(HISTORY[family]):
        figures = kept.values[at, entity, place].astype(np.float64)
        columns[name] = pa.array(figures, from_pandas=True).cast(schema.field(name).type, safe=False)
    rows = len(at)
    return pa.table(
        {field.name: columns.get(field.name, pa.nulls(rows, field.type)) for field in schema}, schema=schema
    )
