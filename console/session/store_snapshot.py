"""The records and the metric history that a store holds, as a session or a query reads them.

Metrics are kept as a row per second of the last minutes and a row per ten seconds (means) before, by the console's
clock. Of everything else the newest record is held, and every event, stack and collective within retention.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.bus import Published
from ..core.store import Store
from ..records import KINDS, Record
from ..records.kinds import SPECS, kind_of
from ..records.metrics import HISTORY
from .format.table_schema import TABLES, line_of
from .stored_records import all_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.metric_history import HistorySnapshot
    from .query.source_tables import HistoryRows, SourceTables


class EntityHistory(msgspec.Struct, frozen=True):
    """Metric history of one kind of entity, and per entity the fields that identify it."""

    metrics: HistorySnapshot
    heads: dict[Hashable, dict[str, Any]]

    def recorded_points(self) -> NDArray[np.bool_]:
        """Return where [instant, entity] any metric is set, without the newest point: that exists as a record."""
        import numpy as np  # takes 100 ms, which a command that asks for no history does not spend

        is_set: NDArray[np.bool_] = np.asarray(~np.isnan(self.metrics.values).all(axis=2))
        if self.metrics.keys:
            newest = np.where(is_set, np.arange(len(self.metrics.t))[:, None], -1).max(axis=0)
            is_set[newest, np.arange(len(self.metrics.keys))] = False
        return is_set


class StoreSnapshot(msgspec.Struct, frozen=True):
    """Tables of a store at one instant: copied in the event loop, read in any thread. A source of a query."""

    records: dict[str, list[Published]]
    history: dict[str, EntityHistory]  # by kind

    def tables(self, wanted: Collection[str]) -> SourceTables:
        """Return these tables."""
        from .query.source_tables import SourceTables

        lines: dict[str, Sequence[str]] = {
            table: [line_of(table)(record).decode() for record in self.records[table]]
            for table in wanted if self.records.get(table)
        }  # fmt: skip
        history = {
            table: _history_rows(table, self.history[table])
            for table in wanted if table in self.history and self.history[table].metrics.keys
        }  # fmt: skip
        return SourceTables(lines=lines, history=history)


def snapshot_tables(store: Store, wanted: Collection[str]) -> StoreSnapshot:
    """Return these tables of the store as they are now; only what may change is copied."""
    records: dict[str, list[Published]] = {table: [] for table in TABLES if table in wanted}
    for record in all_records(store):
        table = kind_of(record)
        if table in records:
            records[table].append(record)
    histories = ((family, metric_history(store, family)) for family in HISTORY if family in wanted)
    return StoreSnapshot(records, {family: history for family, history in histories if history is not None})


def metric_history(store: Store, family: str) -> EntityHistory | None:
    """Return a copy of a store's metric history of that kind; None if it keeps none."""
    if store.history is None:
        return None
    metrics = store.history.series[family].known()
    return EntityHistory(metrics, {key: _head(store, family, key) for key in metrics.keys})


def _head(store: Store, family: str, key: Hashable) -> dict[str, Any]:
    """The fields that identify the entity of a stored metric; without the labels of a rank that is gone."""
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
    """Return a row per instant and entity at which any metric is set."""
    import numpy as np

    from .query.source_tables import HistoryRows

    stored = history.metrics
    instant, entity = np.nonzero(history.recorded_points())
    heads = [history.heads[key] for key in stored.keys]
    metrics = {name: stored.values[instant, entity, i].astype(np.float64) for i, name in enumerate(HISTORY[family])}
    lines = [msgspec.json.encode(head).decode() for head in heads]
    names = tuple(dict.fromkeys(chain.from_iterable(heads)))
    return HistoryRows(lines, names, entity, stored.t[instant] * 10**9, metrics)
