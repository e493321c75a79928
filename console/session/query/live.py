"""What a console that is watching can be asked: its store as tables.

Of what is drawn over time, a row a second of the last minutes, and before them a row each ten seconds (means), at the
console's clock; those rows have the columns that are kept, and null in all others. Beside them stands the newest record
of everything, as it came, and every event, stack and operation that the store still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...core.bus import Published
from ...core.store import Store
from ...records import KINDS, Record
from ...records.kinds import SPECS, kind_of
from ...records.metrics import HISTORY
from ..format.table_schema import TABLES, line_of
from ..record.initial_snapshot import known

if TYPE_CHECKING:
    from ...core.metric_history import HistorySnapshot
    from .sources import HistoryRows, SourceTables


@dataclass(frozen=True)
class EntityHistory:
    """Metric history of one kind of entity, and per entity what identifies it."""

    known: HistorySnapshot
    heads: dict[Hashable, dict[str, Any]]

    def known_points(self) -> NDArray[np.bool_]:
        """Return where [instant, entity] anything is known, without the newest: that exists as a record."""
        is_known: NDArray[np.bool_] = np.asarray(~np.isnan(self.known.values).all(axis=2))
        if self.known.keys:
            newest = np.where(is_known, np.arange(len(self.known.t))[:, None], -1).max(axis=0)
            is_known[newest, np.arange(len(self.known.keys))] = False
        return is_known


@dataclass(frozen=True)
class StoreSnapshot:
    """What the store held at one instant: copied where the store lives, read anywhere. A source of tables."""

    records: dict[str, list[Published]]
    history: dict[str, EntityHistory]  # by kind

    def tables(self, wanted: Collection[str]) -> SourceTables:
        """Return these tables."""
        from .sources import SourceTables

        lines: dict[str, Sequence[str]] = {
            table: [line_of(table)(record).decode() for record in self.records[table]]
            for table in wanted if self.records.get(table)
        }  # fmt: skip
        history = {
            table: _history_rows(table, self.history[table])
            for table in wanted if table in self.history and self.history[table].known.keys
        }  # fmt: skip
        return SourceTables(lines=lines, history=history)


def snapshot(store: Store, wanted: Collection[str]) -> StoreSnapshot:
    """Return these tables of the store as they are now; copies only what changes."""
    records: dict[str, list[Published]] = {table: [] for table in TABLES if table in wanted}
    for record in records_of(store):
        table = kind_of(record)
        if table in records:
            records[table].append(record)
    found = ((family, history_of(store, family)) for family in HISTORY if family in wanted)
    return StoreSnapshot(records, {family: history for family, history in found if history is not None})


def history_of(store: Store, family: str) -> EntityHistory | None:
    """Return a copy of a store's metric history of that kind; None where it keeps none."""
    if store.history is None:
        return None
    known = store.history.series[family].known()
    return EntityHistory(known, {key: _head(store, family, key) for key in known.keys})


def records_of(store: Store) -> Iterator[Published]:
    """Yield every record that a store holds, each once."""
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


def _history_rows(family: str, history: EntityHistory) -> HistoryRows:
    """Return a row per instant and entity of which anything is known."""
    from .sources import HistoryRows

    known = history.known
    at, entity = np.nonzero(history.known_points())
    heads = [history.heads[key] for key in known.keys]
    metrics = {name: known.values[at, entity, place].astype(np.float64) for place, name in enumerate(HISTORY[family])}
    lines = [msgspec.json.encode(head).decode() for head in heads]
    return HistoryRows(lines, tuple(dict.fromkeys(chain.from_iterable(heads))), entity, known.t[at] * 10**9, metrics)
