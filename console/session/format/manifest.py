"""The manifest of compaction: which Parquet files stand for which segments. Read without loading DuckDB.

Segments may be deleted after compaction; `pieces` lists what a session consists of then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from ...records import UNREADABLE
from .layout import SCHEMA, Session, SessionError, inside, segment_number

MANIFEST: Final = "compacted.json"
#: File names that compaction writes; any other name could lead out of the folder, or be a glob for DuckDB.
_NAME: Final = re.compile(
    r"([a-z_]{1,64})/hour=\d{4}-\d{2}-\d{2}T\d{2}/part-(\d{1,9})-(\d{1,9})-\d{1,9}\.parquet", re.ASCII
)


class ParquetPart(msgspec.Struct, frozen=True):
    """One file of one table."""

    path: str  # relative to the folder `parquet`
    table: str
    hour: str
    rows: int


class Manifest(msgspec.Struct, kw_only=True):
    """The compacted part of a session."""

    schema: str = SCHEMA
    segments: dict[str, int] = msgspec.field(default_factory=dict)  # file → bytes when it was compacted
    parts: tuple[ParquetPart, ...] = ()
    damaged_bytes: int = 0  # of segments, unreadable when compacted


class CompactedRange(msgspec.Struct, frozen=True):
    """The Parquet files of one compaction step, of whose segments some or all are deleted."""

    first: int  # numbers of the segments, both included
    last: int
    parts: tuple[ParquetPart, ...]


def read_manifest(session: Session) -> Manifest:
    """Return the manifest; an empty one if there is none. Raises SessionError if it is damaged."""
    try:
        manifest = msgspec.json.decode(inside(session.parquet_folder, MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, *UNREADABLE) as error:
        text = f"{session.parquet_folder / MANIFEST}: {error}"
        if session.segments():
            text += f"; try: remove {session.parquet_folder}, and compact again"
        raise SessionError(text) from error
    for part in manifest.parts:
        segments_of(part)
    return manifest


def _manifest_if_any(session: Session) -> Manifest:
    """Return the manifest; an empty one without a file, also where the folder could not hold one safely."""
    return read_manifest(session) if (session.parquet_folder / MANIFEST).exists() else Manifest()


def pieces(session: Session) -> list[Path | CompactedRange]:
    """Return what a session consists of, oldest first: segments, and Parquet for deleted ones. Raises SessionError."""
    segments = {segment_number(path): path for path in session.segments()}
    manifest = _manifest_if_any(session)
    compacted = {segment_number(Path(name)) for name in manifest.segments}
    ranges: dict[tuple[int, int], list[ParquetPart]] = {}
    for part in manifest.parts:
        ranges.setdefault(segments_of(part), []).append(part)
    result: dict[int, Path | CompactedRange] = dict(segments)
    for (first, last), parts in ranges.items():
        numbers = [number for number in compacted if first <= number <= last] if compacted else range(first, last + 1)
        if all(number in segments for number in numbers):
            continue
        for number in [number for number in result if first <= number <= last]:
            del result[number]
        result[first] = CompactedRange(first, last, tuple(parts))
    return [result[number] for number in sorted(result)]


def last_number(session: Session) -> int:
    """Return the highest segment number the session ever had, deleted ones included. Raises SessionError."""
    manifest = _manifest_if_any(session)
    numbers = [segment_number(path) for path in (*session.segments(), *map(Path, manifest.segments))]
    return max([*numbers, *(segments_of(part)[1] for part in manifest.parts)], default=0)


def segments_of(part: ParquetPart) -> tuple[int, int]:
    """Return the first and last segment a file was made of. Raises SessionError for a name compaction never writes."""
    match = _NAME.fullmatch(part.path)
    if match is None or match[1] != part.table:
        raise SessionError(f"{MANIFEST}: {part.path[:200]!r} was not written by compaction")
    return int(match[2]), int(match[3])
