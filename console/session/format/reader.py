"""The records of a session, in the order in which they arrived."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...core.bus import Published
from ...records import BadRecord, decode
from ...records.kinds import kind_of
from .. import ndjson
from . import zstd_frames
from .layout import SEGMENT_SUFFIX, Session, SessionError
from .manifest import Step, pieces
from .writer import MANY
from .zstd_frames import Damage, Frame, Label

#: Told of what cannot be read.
OnDamage = Callable[[Damage], None]


#: How most lines begin.
_KIND = b'{"kind":"'
#: No record is so short, in bytes, that there are more lines of it than this allows.
_SHORTEST = 16


class Damaged(SessionError):
    """A session of which a part cannot be read; `lenient` reads the rest."""


@dataclass(frozen=True)
class Choice:
    """Which records are wanted. A frame that has none of them is not unpacked."""

    kinds: Collection[str] | None = None
    from_rx: int | None = None  # console CLOCK_REALTIME of their arrival, ns: from, and up to but without
    to_rx: int | None = None

    def may_hold(self, label: Label) -> bool:
        if self.kinds is not None and MANY not in label.kinds and not any(kind in self.kinds for kind in label.kinds):
            return False
        too_early = self.from_rx is not None and label.last_rx < self.from_rx
        too_late = self.to_rx is not None and label.first_rx >= self.to_rx
        return not too_early and not too_late

    def lines(self, raw: bytes) -> Iterable[bytes]:
        """The lines of a frame, without those that, by their first letters, are of a kind that is not wanted."""
        lines = _lines(raw)
        if self.kinds is None:
            return lines
        wanted, at = frozenset(kind.encode() for kind in self.kinds), len(_KIND)
        return (line for line in lines if line[at : line.find(b'"', at)] in wanted or not line.startswith(_KIND))

    def takes(self, record: Published) -> bool:
        if self.kinds is not None and kind_of(record) not in self.kinds:
            return False
        if self.from_rx is not None and record.rx < self.from_rx:
            return False
        return self.to_rx is None or record.rx < self.to_rx


ALL = Choice()


def records(path: Path, choice: Choice = ALL) -> Iterator[Published]:
    """The records of a session's folder, or of one file: a segment, or lines of JSON. Raises Damaged, OSError.

    The end of the last segment may be torn: it is being written, or its console crashed there. That is no damage.
    """

    if path.is_file() and not path.name.endswith(SEGMENT_SUFFIX):
        return (record for record in ndjson.read(path) if choice.takes(record))

    def refuse(damage: Damage) -> None:
        if damage.what != "torn" or damage.path != last:
            name = path.name
            raise Damaged(f"{path}: {damage}; try: gconsole sessions verify {name}, and recover")

    pieces = _pieces(path)
    last = pieces[-1] if pieces else None
    return _chained(path, pieces, choice, refuse)


def lenient(path: Path, on_damage: OnDamage, choice: Choice = ALL) -> Iterator[Published]:
    """All records that can be read; `on_damage` is told of what cannot, a torn tail too. Raises OSError."""
    return _chained(path, _pieces(path), choice, on_damage)


def _pieces(path: Path) -> list[Path | Step]:
    """Segments, oldest first, and in place of those that are gone what compaction made of them."""
    return pieces(Session(path)) if path.is_dir() else [path]


def _chained(path: Path, pieces: list[Path | Step], choice: Choice, on_damage: OnDamage) -> Iterator[Published]:
    for piece in pieces:
        if isinstance(piece, Step):
            yield from compacted_part(Session(path), piece, choice)
        else:
            yield from _read([piece], choice, on_damage)


def compacted_part(session: Session, step: Step, choice: Choice = ALL) -> Iterator[Published]:
    """The records of segments that are gone, out of Parquet. Raises SessionError where that is broken, OSError."""
    from . import parquet_reader  # DuckDB takes long to load

    with _called_damaged(session):
        yield from parquet_reader.records(session.parquet_folder, step.parts, choice)


def span_of(session: Session, step: Step) -> Iterator[tuple[int, int]]:
    """When the earliest and the latest record of segments that are gone arrived, if there is any.

    Raises SessionError where their Parquet is broken, OSError.
    """
    from . import parquet_reader

    with _called_damaged(session):
        found = parquet_reader.span(session.parquet_folder, step.parts)
    if found is not None:
        yield found


@contextlib.contextmanager
def _called_damaged(session: Session) -> Iterator[None]:
    from . import parquet_reader

    try:
        yield
    except parquet_reader.ParquetErrors as error:
        what = str(error).partition("\n")[0]
        raise Damaged(f"{session.path}: its Parquet is damaged: {what}; there are no segments of it") from error


def part(path: Path, begin: int, end: int, on_damage: OnDamage, choice: Choice = ALL) -> Iterator[Published]:
    """The same of a part of one segment, in bytes, that begins and ends with a frame. Raises OSError."""
    return _read([path], choice, on_damage, begin, end)


def labels(path: Path, on_damage: OnDamage) -> Iterator[tuple[Path, Frame]]:
    """What is in a session, frame by frame, without reading it. Raises OSError."""
    for file in segment_files(path):
        for found in zstd_frames.scan(file):
            if isinstance(found, Damage):
                on_damage(found)
            else:
                yield file, found


def segment_files(path: Path) -> list[Path]:
    """The segments of a session's folder, oldest first; or the one segment that `path` is."""
    return Session(path).segments() if path.is_dir() else [path]


def _read(
    files: list[Path], choice: Choice, on_damage: OnDamage, begin: int = 0, end: int | None = None
) -> Iterator[Published]:
    for file in files:
        for found in zstd_frames.contents(file, choice.may_hold, begin, end):
            if isinstance(found, Damage):
                on_damage(found)
            else:
                yield from _decoded(file, *found, choice, on_damage)


def _decoded(file: Path, frame: Frame, raw: bytes, choice: Choice, on_damage: OnDamage) -> Iterator[Published]:
    for line in choice.lines(raw):
        try:
            record = decode(line)
        except BadRecord:  # the checksums are right, so it was written like this: by another version
            on_damage(Damage(file, frame.at, len(line), "damaged"))
            continue
        if choice.takes(record):
            yield record


def _lines(raw: bytes) -> Iterable[bytes]:
    """At once, or one after the other: a list of the lines of a frame that is nothing but newlines takes many times its
    size.
    """
    is_usual = raw.count(b"\n") * _SHORTEST <= len(raw)
    return raw.split(b"\n")[:-1] if is_usual else _one_by_one(raw)


def _one_by_one(raw: bytes) -> Iterator[bytes]:
    at = 0
    while (end := raw.find(b"\n", at)) >= 0:
        yield raw[at:end]
        at = end + 1
