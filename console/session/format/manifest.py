"""What of a session is Parquet: the list that compaction keeps, told without loading what reads Parquet.

Where somebody removed segments after compaction, Parquet is all there is of them: `pieces` says of what a session is
put together then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ...records import UNREADABLE
from .layout import SCHEMA, Session, SessionError, inside

MANIFEST: Final = "compacted.json"


#: How compaction calls its files: what is called otherwise could be anywhere, or be several files for DuckDB.
_NAME: Final = re.compile(
    r"([a-z_]{1,64})/hour=\d{4}-\d{2}-\d{2}T\d{2}/part-(\d{1,9})-(\d{1,9})-\d{1,9}\.parquet", re.ASCII
)


class ParquetPart(msgspec.Struct, frozen=True):
    """One file of one table."""

    path: str  # relative to the folder `parquet`
    table: str
    hour: str
    rows: int


class Compacted(msgspec.Struct, kw_only=True):
    """What of a session is Parquet."""

    schema: str = SCHEMA
    segments: dict[str, int] = msgspec.field(default_factory=dict)  # file → its bytes, as they were
    parts: tuple[ParquetPart, ...] = ()
    damaged_bytes: int = 0  # of segments, that could not be read


def compacted(session: Session) -> Compacted:
    """What of a session is Parquet by now. Raises SessionError where that cannot be read."""
    path = session.parquet_folder / MANIFEST
    try:
        found = msgspec.json.decode(inside(session.parquet_folder, MANIFEST).read_bytes(), type=Compacted)
    except FileNotFoundError:
        return Compacted()
    except (OSError, *UNREADABLE) as error:
        text = f"{path}: {error}"
        if session.segments():
            text += f"; try: remove {session.parquet_folder}, and compact again"
        raise SessionError(text) from error
    for part in found.parts:
        segments_of(part)
    return found


@dataclass(frozen=True)
class Step:
    """What one step of compaction made of segments that are gone, or of which some are."""

    first: int  # segments, by number: from, and up to and with
    last: int
    parts: tuple[ParquetPart, ...]


def pieces(session: Session) -> list[Path | Step]:
    """What a session is put together from, oldest first: segments, and Parquet in place of those that are gone.

    Raises SessionError.
    """
    segments = {_number(path): path for path in session.segments()}
    if not (session.parquet_folder / MANIFEST).exists():
        return list(segments.values())
    done = compacted(session)
    compact = {_number(Path(name)) for name in done.segments}
    steps: dict[tuple[int, int], list[ParquetPart]] = {}
    for part in done.parts:
        steps.setdefault(segments_of(part), []).append(part)
    found: dict[int, Path | Step] = dict(segments)
    for (first, last), parts in steps.items():
        of_it = [number for number in compact if first <= number <= last] if compact else range(first, last + 1)
        if all(number in segments for number in of_it):
            continue
        for number in [number for number in found if first <= number <= last]:
            del found[number]
        found[first] = Step(first, last, tuple(parts))
    return [found[number] for number in sorted(found)]


def last_number(session: Session) -> int:
    """The number of the last segment that a session ever had, there or gone. Raises SessionError."""
    numbers = [_number(path) for path in session.segments()]
    if (session.parquet_folder / MANIFEST).exists():
        done = compacted(session)
        numbers += [_number(Path(name)) for name in done.segments]
        numbers += [segments_of(part)[1] for part in done.parts]
    return max(numbers, default=0)


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def segments_of(part: ParquetPart) -> tuple[int, int]:
    """From which segments a file was made: its name says so. Raises SessionError for a name that none gets."""
    match = _NAME.fullmatch(part.path)
    if match is None or match[1] != part.table:
        raise SessionError(f"{MANIFEST}: {part.path[:200]!r} is no file of a compaction")
    return int(match[2]), int(match[3])
