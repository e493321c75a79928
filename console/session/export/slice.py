"""A part of a session: a time range, nodes, kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

from ...core.bus import Published
from ...core.store import Store
from ...records.kinds import kind_of, names_where
from ...text.timespec import TimeSpecError, instant_ns
from ..format import reader
from ..format.layout import Meta, Session, SessionError
from ..format.reader import ALL, Choice
from ..store_snapshot import current_records

#: What things are; what they were measured to be, and what happened to them, is over.
_STATE: Final = names_where(lambda spec: spec.is_resumed and spec.category == "state")


@dataclass(frozen=True)
class SessionSlice:
    """Records of one session's folder or one file of records, in the order of their arrival."""

    path: Path
    choice: Choice = ALL
    nodes: frozenset[str] | None = None  # None: all, and what is the console's own
    meta: Meta = field(default_factory=Meta)

    def records(self) -> Iterator[Published]:
        """The records, read anew each time. Raises SessionError, RecordFileError, OSError.

        A part that begins later begins like a recording: with what was known then, which had arrived before.
        """
        before = self._known() if self.choice.from_rx is not None else ()
        for record in chain(before, reader.records(self.path, self.choice)):
            if self.nodes is None or record.node in self.nodes or not record.node:
                yield record

    def _known(self) -> Iterator[Published]:
        """What had been said of things that still were as it begins."""
        kinds = _STATE if self.choice.kinds is None else _STATE & frozenset(self.choice.kinds)
        if kinds:
            store = Store()
            # all of those kinds: of what a rank or a GPU is, others tell
            for record in reader.records(self.path, Choice(kinds=_STATE, to_rx=self.choice.from_rx)):
                store.apply([record])
            yield from (record for record in current_records(store) if kind_of(record) in kinds)

    def only(self, *kinds: str) -> Iterator[Published]:
        """Those of these kinds."""
        wanted = set(kinds) if self.choice.kinds is None else set(kinds) & set(self.choice.kinds)
        choice = Choice(wanted, self.choice.from_rx, self.choice.to_rx)
        return SessionSlice(self.path, choice, self.nodes, self.meta).records()


def slice_session(
    path: Path, *, begin: str = "", end: str = "", nodes: frozenset[str] | None = None,
    kinds: frozenset[str] | None = None,
) -> SessionSlice:  # fmt: skip
    """The part that these words mean. Raises SessionError for a time that is none, OSError, RecordFileError."""
    meta = Session(path).read() if path.is_dir() else Meta(name=path.name.partition(".")[0])
    from_rx, to_rx = _time_range(begin, end, *_span(path, meta)) if begin or end else (None, None)
    return SessionSlice(path, Choice(kinds, from_rx, to_rx), nodes, meta)


def _time_range(begin: str, end: str, first: int, last: int) -> tuple[int | None, int | None]:
    """The instants of `--from` (included) and `--to` (excluded), ns. Raises SessionError if nothing lies between."""
    try:
        from_rx = instant_ns(begin, first, last) if begin else None
        to_rx = instant_ns(end, first, last, earliest=from_rx) if end else None
    except TimeSpecError as error:
        raise SessionError(str(error)) from error
    if from_rx is not None and to_rx is not None and to_rx <= from_rx:
        raise SessionError(f"nothing lies between {begin} and {end}: the end comes first")
    if last and ((from_rx is not None and from_rx > last) or (to_rx is not None and to_rx <= first)):
        bounds = " to ".join(
            f"{datetime.fromtimestamp(instant // 10**9):%Y-%m-%d %H:%M:%S}" for instant in (first, last)
        )
        part = f"at or after {begin}" if from_rx is not None and from_rx > last else f"before {end}"
        raise SessionError(f"nothing was recorded {part}; the session covers {bounds} (local time)")
    return from_rx, to_rx


def _span(path: Path, meta: Meta) -> tuple[int, int]:
    """When its first and its last record arrived. Only what is not told by the session itself is read."""
    if meta.first_rx is not None and meta.last_rx is not None and meta.state == "closed":
        return meta.first_rx, meta.last_rx
    first, last = 0, 0
    for record in reader.records(path):
        first, last = first or record.rx, max(last, record.rx)
    return first, last


def kinds_in(meta: Meta) -> Mapping[str, int]:
    """How many records of each kind the sealed part of a session has."""
    return meta.counts
