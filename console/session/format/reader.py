"""Read the records of a session in order of arrival."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ...core.bus import Published
from ...records import BadRecord, decode
from ...records.kinds import kind_of
from .. import ndjson
from . import zstd_frames
from .layout import SEGMENT_SUFFIX, Session, SessionError, segment_number
from .manifest import CompactedRange, survey
from .writer import OTHER_KINDS
from .zstd_frames import Damage, Frame

#: Called with each damaged or torn place.
OnDamage = Callable[[Damage], None]

#: How most lines begin.
_KIND_PREFIX = b'{"kind":"'
#: Bytes. Lower bound of a record; more lines per byte are only separators.
_MIN_RECORD_BYTES = 16


class Damaged(SessionError):
    """A part of a session is damaged; `lenient` reads the rest."""


class RecordFilter(msgspec.Struct, frozen=True):
    """Selects records by kind and arrival. Frames without a match are not decompressed."""

    kinds: Collection[str] | None = None
    from_rx: int | None = None  # console CLOCK_REALTIME of arrival, ns; `from_rx` included, `to_rx` excluded
    to_rx: int | None = None

    def may_match(self, kinds: Collection[str], first_rx: int, last_rx: int) -> bool:
        """Whether records of these kinds that arrived in this range may match."""
        if self.kinds is not None and OTHER_KINDS not in kinds and not any(kind in self.kinds for kind in kinds):
            return False
        too_early = self.from_rx is not None and last_rx < self.from_rx
        return not too_early and (self.to_rx is None or first_rx < self.to_rx)

    def lines(self, raw: bytes, counts: Mapping[str, int]) -> Iterable[bytes]:
        """Return the lines of a frame with so many records of each kind, without those that begin with another kind."""
        if self.kinds is None:
            return _lines(raw)
        named = sorted(counts.keys() & set(self.kinds))
        # to search for some lines is faster than to split all
        places = sorted(place for kind in named for place in _places(raw, kind, counts[kind]))
        if len(places) == sum(counts[kind] for kind in named) and OTHER_KINDS not in counts:
            return [raw[place : raw.find(b"\n", place)] for place in places]
        wanted, start = frozenset(kind.encode() for kind in self.kinds), len(_KIND_PREFIX)
        return (line for line in _lines(raw) if line[start : line.find(b'"', start)] in wanted
                or not line.startswith(_KIND_PREFIX))  # fmt: skip

    def matches(self, record: Published) -> bool:
        """Whether a record is selected."""
        if self.kinds is not None and kind_of(record) not in self.kinds:
            return False
        if self.from_rx is not None and record.rx < self.from_rx:
            return False
        return self.to_rx is None or record.rx < self.to_rx


ALL = RecordFilter()


def records(path: Path, choice: RecordFilter = ALL) -> Iterator[Published]:
    """Return the records of a session's folder, a segment, or an NDJSON file. Raises Damaged, OSError.

    A torn end of the last segment is not damage: it is still being written, or its console crashed there.
    """
    if path.is_file() and not path.name.endswith(SEGMENT_SUFFIX):
        return (record for record in ndjson.read(path) if choice.matches(record))

    def refuse(damage: Damage) -> None:
        if damage.what != "torn" or damage.path != last:
            raise Damaged(f"{path}: {damage}; try: gconsole sessions verify {path.name}, and recover")

    parts, damages = _survey(path)
    last = _open_segment(path, parts)
    for damage in damages:
        if damage.is_loss:
            refuse(damage)
    return _read_pieces(path, parts, choice, refuse)


def _open_segment(path: Path, parts: list[Path | CompactedRange]) -> Path | None:
    """Return the segment that may end within a frame; None where all are sealed, or session.json cannot tell."""
    last = parts[-1] if parts else None
    if not isinstance(last, Path) or not path.is_dir():
        return path if last == path else None
    try:
        return last if segment_number(last) > Session(path).read().sealed else None
    except SessionError:
        return None


def lenient(path: Path, on_damage: OnDamage, choice: RecordFilter = ALL) -> Iterator[Published]:
    """Yield all readable records; `on_damage` receives damaged places and a torn end. Raises OSError."""
    parts, damages = _survey(path)
    for damage in damages:
        on_damage(damage)
    return _read_pieces(path, parts, choice, on_damage)


def _survey(path: Path) -> tuple[list[Path | CompactedRange], list[Damage]]:
    return survey(Session(path)) if path.is_dir() else ([path], [])


def _read_pieces(
    path: Path, parts: list[Path | CompactedRange], choice: RecordFilter, on_damage: OnDamage
) -> Iterator[Published]:
    for part in parts:
        if isinstance(part, CompactedRange):
            yield from compacted_records(Session(path), part, choice)
        else:
            yield from read_range(part, 0, None, on_damage, choice)


def compacted_records(session: Session, part: CompactedRange, choice: RecordFilter = ALL) -> Iterator[Published]:
    """Yield the records of deleted segments from their Parquet. Raises Damaged, SessionError, OSError."""
    from . import parquet_reader  # imports DuckDB

    with _as_damaged(session):
        yield from parquet_reader.records(session.parquet_folder, part.parts, choice)


def compacted_span(session: Session, part: CompactedRange) -> tuple[int, int] | None:
    """Return the first and last arrival in the Parquet of deleted segments; None without records.

    Raises Damaged, SessionError, OSError.
    """
    from . import parquet_reader

    with _as_damaged(session):
        return parquet_reader.span(session.parquet_folder, part.parts)


@contextlib.contextmanager
def _as_damaged(session: Session) -> Iterator[None]:
    from . import parquet_reader

    try:
        yield
    except parquet_reader.ParquetErrors as error:
        what = str(error).partition("\n")[0]
        raise Damaged(f"{session.path}: its Parquet is damaged: {what}; the segments were deleted") from error


def scan_session(path: Path, on_damage: OnDamage) -> Iterator[Frame]:
    """Yield the frames of a session or segment by their labels, without decompressing. Raises OSError."""
    for file in segment_files(path):
        for item in zstd_frames.scan(file):
            if isinstance(item, Damage):
                on_damage(item)
            else:
                yield item


def ignore_damage(damage: Damage) -> None:
    """Skip damage that is reported elsewhere: when the segment is read, recovered or verified."""


def segment_files(path: Path) -> list[Path]:
    """Return the segments of a session's folder, oldest first; or the single segment that `path` is."""
    return Session(path).segments() if path.is_dir() else [path]


def read_range(
    path: Path, begin: int, end: int | None, on_damage: OnDamage, choice: RecordFilter = ALL
) -> Iterator[Published]:
    """Yield the records of a range of bytes of one segment that begins and ends at a frame. Raises OSError."""

    def is_wanted(label: zstd_frames.Label) -> bool:
        return choice.may_match(label.kinds, label.first_rx, label.last_rx)

    for item in zstd_frames.contents(path, is_wanted, begin, end):
        if isinstance(item, Damage):
            on_damage(item)
        else:
            yield from decoded(path, *item, choice, on_damage)


def decoded(file: Path, frame: Frame, raw: bytes, choice: RecordFilter, on_damage: OnDamage) -> Iterator[Published]:
    """Yield the selected records of a frame; lines that are none are damage."""
    for line in choice.lines(raw, frame.label.kinds):
        try:
            record = decode(line)
        except BadRecord:  # the checksum is right, so another version wrote it like this
            on_damage(Damage(file, frame.offset, len(line), "damaged"))
            continue
        if choice.matches(record):
            yield record


def _places(raw: bytes, kind: str, number: int) -> Iterator[int]:
    """Yield where lines begin that start with this kind; no more than one beyond `number`."""
    prefix = b'%b%b"' % (_KIND_PREFIX, kind.encode())
    if raw.startswith(prefix):
        yield 0
    place = 0
    for _ in range(number + 1):
        place = raw.find(b"\n" + prefix, place) + 1
        if not place:
            return
        yield place


def _lines(raw: bytes) -> Iterable[bytes]:
    """Lines as a list, or one by one where they are so short that a list would take many times the frame's size."""
    is_usual = raw.count(b"\n") * _MIN_RECORD_BYTES <= len(raw)
    return raw.split(b"\n")[:-1] if is_usual else _iterate_lines(raw)


def _iterate_lines(raw: bytes) -> Iterator[bytes]:
    start = 0
    while (end := raw.find(b"\n", start)) >= 0:
        yield raw[start:end]
        start = end + 1
