"""Which part of a session is meant: a span of time, nodes, kinds; and how people write the span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

from ...core.control import Published
from ...core.store import Store
from ..format import reader
from ..format.counts import kind_of
from ..format.index import FIGURES
from ..format.layout import Meta, Session, SessionError
from ..format.reader import ALL, Choice
from ..record.initial_snapshot import STATE_KINDS, known

#: What things are; what they were measured to be, and what happened to them, is over.
_STATE: Final = STATE_KINDS - FIGURES - {"mark", "gap", "log", "gpu_event"}
_UNITS: Final = {"ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}


@dataclass(frozen=True)
class Chosen:
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
            yield from (record for record in known(store) if kind_of(record) in kinds)

    def only(self, *kinds: str) -> Iterator[Published]:
        """Those of these kinds."""
        wanted = set(kinds) if self.choice.kinds is None else set(kinds) & set(self.choice.kinds)
        choice = Choice(wanted, self.choice.from_rx, self.choice.to_rx)
        return Chosen(self.path, choice, self.nodes, self.meta).records()


def chosen(
    path: Path, *, begin: str = "", end: str = "", nodes: frozenset[str] | None = None,
    kinds: frozenset[str] | None = None,
) -> Chosen:  # fmt: skip
    """The part that these words mean. Raises SessionError for a time that is none, OSError, RecordFileError."""
    meta = Session(path).read() if path.is_dir() else Meta(name=path.name.partition(".")[0])
    span = _span(path, meta) if begin or end else (0, 0)
    choice = Choice(kinds, instant(begin, *span) if begin else None, instant(end, *span) if end else None)
    if choice.from_rx is not None and choice.to_rx is not None and choice.to_rx <= choice.from_rx:
        raise SessionError(f"nothing lies between {begin} and {end}: the end comes first")
    return Chosen(path, choice, nodes, meta)


def _span(path: Path, meta: Meta) -> tuple[int, int]:
    """When its first and its last record arrived. Only what is not told by the session itself is read."""
    if meta.first_rx is not None and meta.last_rx is not None and meta.state == "closed":
        return meta.first_rx, meta.last_rx
    first, last = 0, 0
    for record in reader.records(path):
        first, last = first or record.rx, max(last, record.rx)
    return first, last


def instant(text: str, first: int, last: int) -> int:
    """An instant in ns: `90s` after the first record, `-5m` before the last one, or a date and time of this machine.

    Raises SessionError for anything else.
    """
    match = re.fullmatch(r"([+-]?)(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip())
    if match:
        length = int(float(match[2]) * _UNITS[match[3]])
        return last - length if match[1] == "-" else first + length
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
    except ValueError as error:
        raise SessionError(f"{text!r} is no time; write 90s, -5m (before the end) or 2026-11-21T08:30:00") from error


def kinds_in(meta: Meta) -> Mapping[str, int]:
    """How many records of each kind the sealed part of a session has."""
    return meta.counts
