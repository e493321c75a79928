"""The manifest of compaction: which Parquet files stand for which segments. Read without loading DuckDB.

Segments may be deleted after compaction; `survey` lists what a session consists of then, and what is missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from ...records import UNREADABLE
from .layout import (
    SCHEMA,
    Meta,
    NewerSchema,
    SegmentSeal,
    Session,
    SessionError,
    decode_checked,
    digest_of,
    inside,
    segment_number,
)
from .zstd_frames import Damage, first_crc

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
    digest: str = ""  # SHA-256 of the file; "" of versions before, whose files are read only where no segment is left


class Manifest(msgspec.Struct, kw_only=True):
    """The compacted part of a session."""

    schema: str = SCHEMA
    checksum: str = ""  # of the file (`layout.write_checked`)
    session: str = ""  # `Meta.id`; "" of versions before
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
        manifest = decode_checked(inside(session.parquet_folder, MANIFEST).read_bytes(), Manifest)
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


def _manifest_if_any(session: Session) -> Manifest | SessionError:
    """Return the manifest, or why it cannot be read; an empty one without a file."""
    try:
        return read_manifest(session) if (session.parquet_folder / MANIFEST).exists() else Manifest()
    except SessionError as error:
        return error


def pieces(session: Session) -> list[Path | CompactedRange]:
    """Return what a session consists of, oldest first: segments, and Parquet for deleted ones. Raises SessionError."""
    return survey(session)[0]


def survey(session: Session) -> tuple[list[Path | CompactedRange], list[Damage]]:
    """Return the pieces of a session, and what is missing or changed; damage within the pieces is found by reading.

    Raises SessionError for a damaged manifest, unless all segments that were sealed are there and hold everything.
    """
    meta, damages = _meta(session)
    seals = meta.seals
    segments = {segment_number(path): path for path in session.segments()}
    manifest = _manifest_if_any(session)
    if isinstance(manifest, SessionError):
        if not seals or any(seal.number not in segments for seal in seals):
            raise manifest
        path = session.parquet_folder / MANIFEST
        damages.append(Damage(path, 0, 0, "replaced"))
        manifest = Manifest()
    result = _pieces(segments, manifest)
    ranges = [piece for piece in result if isinstance(piece, CompactedRange)]
    for seal in seals:
        if not any(piece.first <= seal.number <= piece.last for piece in ranges):
            damages += check_seal(session.segment(seal.number), seal)
    if manifest.session and meta.id and manifest.session != meta.id:
        damages.append(Damage(session.meta_path, 0, 0, "exchanged"))
    if seals and meta.state == "closed":
        sealed = {seal.number for seal in seals}
        damages += (Damage(segments[number], 0, 0, "exchanged") for number in segments.keys() - sealed
                    if segments[number].stat().st_size)  # fmt: skip
    exchanged = {damage.path for damage in damages if damage.what == "exchanged"}
    return [piece for piece in result if piece not in exchanged], damages


def check_seal(path: Path, seal: SegmentSeal) -> list[Damage]:
    """Return the damage of a sealed segment as far as its length and first frame show it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return [Damage(path, 0, seal.bytes, "missing")]
    if first_crc(path) not in (None, seal.first_crc):
        return [Damage(path, 0, seal.bytes, "exchanged")]
    return [] if size == seal.bytes else [Damage(path, min(size, seal.bytes), abs(seal.bytes - size), "changed")]


def check_part(session: Session, part: ParquetPart) -> list[Damage]:
    """Return the damage of a Parquet file, which is read once per process. Raises SessionError for a link, OSError."""
    path = inside(session.parquet_folder, part.path)
    if not path.exists():
        return [Damage(path, 0, 0, "missing")]
    is_sound = not part.digest or digest_of(path) == part.digest
    return [] if is_sound else [Damage(path, 0, path.stat().st_size, "damaged")]


def _meta(session: Session) -> tuple[Meta, list[Damage]]:
    """The metadata; empty, and the damage, where session.json cannot be read. Raises NewerSchema."""
    try:
        return session.read(), []
    except NewerSchema:
        raise
    except SessionError:
        return Meta(), [Damage(session.meta_path, 0, 0, "unchecked")]


def _pieces(segments: dict[int, Path], manifest: Manifest) -> list[Path | CompactedRange]:
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
    if isinstance(manifest, SessionError):
        raise manifest
    numbers = [segment_number(path) for path in (*session.segments(), *map(Path, manifest.segments))]
    return max([*numbers, *(segments_of(part)[1] for part in manifest.parts)], default=0)


def segments_of(part: ParquetPart) -> tuple[int, int]:
    """Return the first and last segment a file was made of. Raises SessionError for a name compaction never writes."""
    match = _NAME.fullmatch(part.path)
    if match is None or match[1] != part.table:
        raise SessionError(f"{MANIFEST}: {part.path[:200]!r} was not written by compaction")
    return int(match[2]), int(match[3])
