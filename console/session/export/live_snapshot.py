"""The in-memory history of a console as the source of an export.

Metrics are a record per second of the last minutes and one per ten seconds (means) before; of everything else the
newest record is included, and every event, stack and collective within retention. Secrets and variables are redacted
as in a recording.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np

from ... import __version__
from ...core.bus import Published
from ...core.store import ProcessKey, Store
from ...records import KINDS, AgentCost, Gpu, Host, Log, Nic, RankStat
from ...records.kinds import SPECS, kind_of
from ...records.metrics import HISTORY
from ..format.layout import Meta, RecorderRun
from ..format.redact import Redactor
from ..store_snapshot import EntityHistory, metric_history
from ..stored_records import all_records
from .slice import SessionSlice

_SECOND: Final = 1_000_000_000
_NOTE: Final = (
    "exported from the memory of a console, not recorded: metrics are one per second of the last 5 minutes, and means "
    "of ten seconds before"
)
#: Records stamped by an agent when it samples; others may be the console's own records about a node.
_SAMPLED: Final = (AgentCost, Host, Gpu, Nic, RankStat)


class _ClockOffsets(msgspec.Struct, frozen=True):
    """Offsets of two clocks to a node's MONOTONIC_RAW, ns, at its newest record."""

    t: int = 0  # the node's CLOCK_REALTIME
    rx: int = 0  # the console's CLOCK_REALTIME


class LiveSnapshot(SessionSlice, frozen=True, kw_only=True):
    """The records of a store at one instant: copied in the event loop, read in any thread."""

    held: tuple[Published, ...] = ()  # in order of arrival
    history: tuple[tuple[str, EntityHistory], ...] = ()  # by family
    offsets: dict[str, _ClockOffsets]  # by node
    #: Idle ranks: since when (`mono`), and their newest record.
    idle: Mapping[ProcessKey, tuple[int, RankStat]]
    agent: str = ""  # of the records made from the history

    def records(self) -> Iterator[Published]:
        """Yield the records in order of arrival."""
        return heapq.merge(*self._parts(self.choice.kinds), key=lambda record: record.rx)

    def _parts(self, wanted: Collection[str] | None) -> Iterator[Iterable[Published]]:
        yield (record for record in self.held if wanted is None or kind_of(record) in wanted)
        for number, (family, history) in enumerate(self.history):
            if wanted is None or family in wanted:
                yield self._history_records(family, history, f"{self.agent}{number}")

    def _history_records(self, family: str, history: EntityHistory, agent: str) -> Iterator[Published]:
        """A record per instant and entity at which any metric is set."""
        stored, names = history.metrics, HISTORY[family]
        heads = [history.heads[key] for key in stored.keys]
        for number, (instant, entity) in enumerate(zip(*np.nonzero(history.recorded_points()), strict=True), 1):
            if _is_identified(family, heads[entity]):
                metrics = dict(zip(names, stored.values[instant, entity], strict=True))
                head = heads[entity] | {"agent": agent, "seq": number}
                yield self._record(family, head, int(stored.t[instant]), metrics)

    def _record(self, family: str, head: dict[str, Any], second: int, metrics: dict[str, Any]) -> Published:
        offsets = self.offsets.get(head["node"], _ClockOffsets())
        mono = second * _SECOND - offsets.rx
        values: dict[str, Any] = {
            name: int(value) if name.endswith("_bytes") else float(value)
            for name, value in metrics.items() if not np.isnan(value)
        }  # fmt: skip
        stamps: dict[str, Any] = {"t": mono + offsets.t, "mono": mono, "rx": second * _SECOND}
        state = self._rank_state(head, mono) if family == "rank_stat" else {}
        return cast(Published, KINDS[family](**head, **values, **stamps, **state))

    def _rank_state(self, head: dict[str, Any], mono: int) -> dict[str, Any]:
        """The state of a rank that has been idle since before that instant; else unknown."""
        since, newest = self.idle.get((head["node"], head["pid"], head["start_ticks"]), (mono + 1, None))
        if newest is None or mono < since:
            return {"state": "unknown"}
        return {"state": newest.state, "proc_state": newest.proc_state, "ctx_switches_s": newest.ctx_switches_s}


def _is_identified(family: str, head: dict[str, Any]) -> bool:
    """Whether all fields that identify the entity are set; of a rank that is gone only its process is."""
    spec = SPECS[KINDS[family]]
    names = ("node", *spec.key, *spec.labels)
    return all(name in head and (head[name] is not None or name == "rank") for name in names)


def live_snapshot(store: Store, name: str) -> LiveSnapshot:
    """Return what the store holds now, as a session of that name."""
    agent, redact = secrets.token_hex(8), Redactor()
    records = sorted(all_records(store), key=lambda record: record.rx)
    offsets = {record.node: _ClockOffsets(record.t - record.mono, record.rx - record.mono) for record in records
               if isinstance(record, _SAMPLED) and record.mono}  # fmt: skip
    steps = list(_step_records(store, offsets, agent))
    history = [(family, entities) for family in HISTORY if (entities := metric_history(store, family)) is not None]
    first = min([record.rx for record in (*records[:1], *steps)] + _history_begins(history), default=store.newest_rx)
    last = store.newest_rx
    note = Log(agent=agent, seq=1, t=first, rx=first, source="console", severity="warning", text=_NOTE)
    held = sorted((note, *(redact(record) for record in records), *steps), key=lambda record: record.rx)
    cluster = store.console.cluster if store.console is not None else ""
    meta = Meta(
        name=name, id=secrets.token_hex(8), cluster=cluster, state="closed", created=first, closed=last,
        parts=(RecorderRun(began=first, ended=last, how="stopped", version=__version__),), first_rx=first, last_rx=last,
    )  # fmt: skip
    idle = {key: (rank.still_since, rank.stat) for key, rank in store.ranks.items()
            if rank.still_since is not None and rank.stat is not None}  # fmt: skip
    return LiveSnapshot(
        Path(name), meta=meta, held=tuple(held), history=tuple(history), offsets=offsets, idle=idle, agent=agent
    )


def _history_begins(history: Iterable[tuple[str, EntityHistory]]) -> list[int]:
    """The first instant of each family with a metric, ns."""
    points = ((kept.metrics.t, np.flatnonzero(~np.isnan(kept.metrics.values).all(axis=(1, 2)))) for _, kept in history)
    return [int(seconds[filled[0]]) * _SECOND for seconds, filled in points if filled.size]


def _step_records(store: Store, offsets: dict[str, _ClockOffsets], agent: str) -> Iterator[RankStat]:
    """A record for each step at which a rank was observed, even if the original was dropped."""
    observed = ((key, ranks, seen) for key, ranks in store.steps.ranks().items() for seen in ranks.seen)
    for number, ((job, attempt, rank), progress, seen) in enumerate(observed, 2):
        offset = offsets.get(progress.node, _ClockOffsets())
        pid, start_ticks = progress.process
        yield RankStat(
            node=progress.node, agent=agent, seq=number, t=seen.mono + offset.t, mono=seen.mono,
            rx=seen.mono + offset.rx, job=job, attempt=attempt, rank=rank, pid=pid, start_ticks=start_ticks,
            state="unknown", step=seen.step,
        )  # fmt: skip
