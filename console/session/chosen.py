"""Which part of a session is meant: a span of time, nodes, kinds; and how people write the span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from ..hub import Published
from . import reading
from .layout import Meta, Session, SessionError
from .reading import ALL, Choice

_UNITS: Final = {"ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}


@dataclass(frozen=True)
class Chosen:
    """Records of one session's folder or one file of records, in the order of their arrival."""

    path: Path
    choice: Choice = ALL
    nodes: frozenset[str] | None = None  # None: all, and what is the console's own
    meta: Meta = field(default_factory=Meta)

    def records(self) -> Iterator[Published]:
        """The records, read anew each time. Raises SessionError, RecordFileError, OSError."""
        for record in reading.records(self.path, self.choice):
            if self.nodes is None or record.node in self.nodes or not record.node:
                yield record

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
    return Chosen(path, choice, nodes, meta)


def _span(path: Path, meta: Meta) -> tuple[int, int]:
    """When its first and its last record arrived. Only what is not told by the session itself is read."""
    if meta.first_rx is not None and meta.last_rx is not None and meta.state == "closed":
        return meta.first_rx, meta.last_rx
    first, last = 0, 0
    for record in reading.records(path):
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
