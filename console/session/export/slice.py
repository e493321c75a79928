"""A slice of a session, by time range, nodes and kinds, as the source of an export."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from ...analysis.clock.model import CommonClock
from ...core.bus import Published
from ...core.store import Store
from ...records import RawRecord, Record
from ...records.kinds import kind_of, names_where
from ...text.format import date_time
from ...text.nodeset_fold import fold
from ...text.timespec import TimeSpecError, instant_ns
from ..format import reader
from ..format.index import open_index
from ..format.layout import Meta, Session, SessionError
from ..format.reader import ALL, RecordFilter
from ..record.selection import GpuChoice
from ..stored_records import current_records

#: Kinds that describe entities, without metrics and events.
_STATE: Final = names_where(lambda spec: spec.is_resumed and spec.category == "state")


class SessionSlice(msgspec.Struct, frozen=True):
    """Selected records of a session's folder or a record file, in order of arrival."""

    path: Path
    choice: RecordFilter = ALL
    nodes: frozenset[str] | None = None  # None: all; the console's own records are always included
    meta: Meta = msgspec.field(default_factory=Meta)
    gpus: tuple[str, ...] = ()  # "0-3", "node2:7"; () for all

    @property
    def name(self) -> str:
        """Name of the session, or of its file."""
        return self.meta.name or self.path.name

    def records(self) -> Iterator[Published]:
        """Yield the records, read anew at each call. Raises SessionError, RecordFileError, OSError.

        Like a recording, a slice that begins later begins with the state at that instant, which arrived before.
        """
        before = self._initial_state() if self.choice.from_rx is not None else ()
        gpus = GpuChoice(self.gpus)
        for record in chain(before, reader.records(self.path, self.choice)):
            if self.nodes is not None and record.node and record.node not in self.nodes:
                continue
            if gpus.matches(record, record.node):
                yield record

    def check_present(self) -> None:
        """Raises SessionError for a range or nodes without records, instead of an empty export.

        Nodes are not checked while a session is recorded: they may come later.
        """
        first, last = self.choice.from_rx, self.choice.to_rx
        is_open = self.path.is_dir() and self.meta.state == "recording"
        if self.nodes is not None and not is_open:
            recorded = {agent.node for agent in self.meta.agents.values() if agent.node}
            recorded = recorded or {record.node for record in reader.records(self.path) if record.node}
            if recorded and (unknown := self.nodes - recorded):
                raise SessionError(f"no records of {fold(sorted(unknown))}; recorded nodes: {fold(sorted(recorded))}")
        if (first, last) != (None, None) and next(
            reader.records(self.path, RecordFilter(None, first, last)), None
        ) is None:
            words = [f"{word} {date_time(ns)}" for word, ns in (("from", first), ("to", last)) if ns is not None]
            raise SessionError(f"nothing was recorded {' '.join(words)} (local time)")

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


#: ns. A sample is delivered at most this long after it was taken; a node's clock that says otherwise is wrong.
_DELIVERED_NS: Final = 3_600_000_000_000
#: ns. A node's clock may be ahead of the console's by this much.
_AHEAD_NS: Final = 5_000_000_000


class SampleClock:
    """When samples were taken: on the common clock where its model reaches, else by the clock of their node.

    Arrival is later than that by the whole of a lost connection for what an agent has buffered meanwhile.
    """

    def __init__(self, source: SessionSlice) -> None:
        """Read the clock records of a session. Raises as `SessionSlice.records`."""
        self._clock = CommonClock.of(list(source.only("clock_node", "clock_snapshot")))

    def at(self, record: Record | RawRecord) -> int:
        """Return the instant of a sample, ns; its arrival where the clock of its node is wrong or not known."""
        if isinstance(record, RawRecord):
            return record.rx
        common = self._clock.to_cluster(record.node, record.mono) if record.mono else None
        for instant in (common.ns if common is not None else 0, record.t):
            if instant and record.rx - _DELIVERED_NS <= instant <= record.rx + _AHEAD_NS:
                return instant
        return record.rx


def slice_session(
    path: Path, *, begin: str | int = "", end: str | int = "", nodes: frozenset[str] | None = None,
    kinds: frozenset[str] | None = None, gpus: tuple[str, ...] = (),
) -> SessionSlice:  # fmt: skip
    """Return the slice of a session or record file; `begin` and `end` as typed by the user, or in ns since 1970.

    Raises SessionError for an invalid time or GPU, OSError, RecordFileError.
    """
    GpuChoice(gpus)
    meta = Session(path).read() if path.is_dir() else Meta(name=path.name.partition(".")[0])
    from_rx, to_rx = (None, None) if begin == end == "" else _time_range(begin, end, *_span(path, meta))
    return SessionSlice(path, RecordFilter(kinds, from_rx, to_rx), nodes, meta, gpus)


def _time_range(begin: str | int, end: str | int, first: int, last: int) -> tuple[int | None, int | None]:
    """The instants of `--from` (included) and `--to` (excluded), ns. Raises SessionError for an empty range."""
    try:
        from_rx = instant_ns(begin, first, last) if isinstance(begin, str) and begin else begin or None
        to_rx = instant_ns(end, first, last, earliest=from_rx) if isinstance(end, str) and end else end or None
    except TimeSpecError as error:
        raise SessionError(str(error)) from error
    if from_rx is not None and to_rx is not None and to_rx <= from_rx:
        raise SessionError(f"empty range: {end} is not after {begin}")
    if last and ((from_rx is not None and from_rx > last) or (to_rx is not None and to_rx <= first)):
        bounds = f"{date_time(first)} to {date_time(last)}"
        part = f"at or after {begin}" if from_rx is not None and from_rx > last else f"before {end}"
        raise SessionError(f"nothing was recorded {part}; the session covers {bounds} (local time)")
    return from_rx, to_rx


def _span(path: Path, meta: Meta) -> tuple[int, int]:
    """First and last instant; 0 without records. Those of a file are read from its records."""
    if path.is_dir():
        return open_index(Session(path)).span(meta) or (0, 0)
    arrivals = [record.rx for record in reader.records(path)]
    return min(arrivals, default=0), max(arrivals, default=0)
