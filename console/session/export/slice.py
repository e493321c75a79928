"""Sources of an export: a slice of a session (time range, nodes, kinds), or the in-memory history of a console.

Of a console, metrics are a record per second of the last minutes and one per ten seconds (means) before; of everything
else the newest record is included, and every event, stack and collective within retention. Secrets and variables are
redacted as in a recording.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from ... import __version__
from ...core.bus import Published
from ...core.store import ProcessKey, Store
from ...records import KINDS, AgentCost, Gpu, Host, Log, Nic, RankStat
from ...records.kinds import SPECS, kind_of, names_where
from ...records.metrics import HISTORY
from ...text.timespec import TimeSpecError, instant_ns
from ..format import reader
from ..format.layout import Meta, RecorderRun, Session, SessionError
from ..format.reader import ALL, RecordFilter
from ..format.redact import Redactor
from ..store_snapshot import EntityHistory, all_records, current_records, metric_history

#: Kinds that describe entities, without metrics and events.
_STATE: Final = names_where(lambda spec: spec.is_resumed and spec.category == "state")


class SessionSlice(msgspec.Struct, frozen=True):
    """Selected records of a session's folder or a record file, in order of arrival."""

    path: Path
    choice: RecordFilter = ALL
    nodes: frozenset[str] | None = None  # None: all; the console's own records are always included
    meta: Meta = msgspec.field(default_factory=Meta)

    @property
    def name(self) -> str:
        """Name of the session, or of its file."""
        return self.meta.name or self.path.name

    def records(self) -> Iterator[Published]:
        """Yield the records, read anew at each call. Raises SessionError, RecordFileError, OSError.

        Like a recording, a slice that begins later begins with the state at that instant, which arrived before.
        """
        before = self._initial_state() if self.choice.from_rx is not None else ()
        for record in chain(before, reader.records(self.path, self.choice)):
            if self.nodes is None or record.node in self.nodes or not record.node:
                yield record

    def _initial_state(self) -> Iterator[Published]:
        kinds = _STATE if self.choice.kinds is None else _STATE & frozenset(self.choice.kinds)
        if kinds:
            store = Store()
            # all state kinds are folded: the store resolves a rank or GPU from several of them
            for record in reader.records(self.path, RecordFilter(kinds=_STATE, to_rx=self.choice.from_rx)):
                store.apply([record])
            yield from (record for record in current_records(store) if kind_of(record) in kinds)

    def only(self, *kinds: str) -> Iterator[Published]:
        """Yield the records of these kinds."""
        wanted = frozenset(kinds) if self.choice.kinds is None else frozenset(kinds) & frozenset(self.choice.kinds)
        return replace(self, choice=replace(self.choice, kinds=wanted)).records()


def slice_session(
    path: Path, *, begin: str = "", end: str = "", nodes: frozenset[str] | None = None,
    kinds: frozenset[str] | None = None,
) -> SessionSlice:  # fmt: skip
    """Return the slice of a session or record file; `begin` and `end` as typed by the user.

    Raises SessionError for an invalid time, OSError, RecordFileError.
    """
    meta = Session(path).read() if path.is_dir() else Meta(name=path.name.partition(".")[0])
    from_rx, to_rx = _time_range(begin, end, *_span(path, meta)) if begin or end else (None, None)
    return SessionSlice(path, RecordFilter(kinds, from_rx, to_rx), nodes, meta)


def _time_range(begin: str, end: str, first: int, last: int) -> tuple[int | None, int | None]:
    """The instants of `--from` (included) and `--to` (excluded), ns. Raises SessionError for an empty range."""
    try:
        from_rx = instant_ns(begin, first, last) if begin else None
        to_rx = instant_ns(end, first, last, earliest=from_rx) if end else None
    except TimeSpecError as error:
        raise SessionError(str(error)) from error
    if from_rx is not None and to_rx is not None and to_rx <= from_rx:
        raise SessionError(f"empty range: {end} is not after {begin}")
    if last and ((from_rx is not None and from_rx > last) or (to_rx is not None and to_rx <= first)):
        bounds = " to ".join(
            f"{datetime.fromtimestamp(instant // 10**9):%Y-%m-%d %H:%M:%S}" for instant in (first, last)
        )
        part = f"at or after {begin}" if from_rx is not None and from_rx > last else f"before {end}"
        raise SessionError(f"nothing was recorded {part}; the session covers {bounds} (local time)")
    return from_rx, to_rx


def _span(path: Path, meta: Meta) -> tuple[int, int]:
    """First and last arrival; read from the records unless the session is closed."""
    if meta.first_rx is not None and meta.last_rx is not None and meta.state == "closed":
        return meta.first_rx, meta.last_rx
    first, last = 0, 0
    for record in reader.records(path):
        first, last = first or record.rx, max(last, record.rx)
    return first, last


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
