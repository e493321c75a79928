"""Compaction: write segments as Parquet, a table per kind and hour of arrival, in steps that may be interrupted.

    parquet/compacted.json                            the `Manifest`, replaced atomically
    parquet/gpu/hour=2026-11-21T08/part-000001-000004-0.parquet
                                                      of segments 1 to 4, first file of this hour

A step writes and syncs all files of a few segments before it adds them to the manifest. Files that the manifest does
not name belong to an interrupted step: they are never read, and the next run deletes them. Segments are kept until
`drop_segments`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...text import format
from ...text.atomic_files import write_atomically
from ..format import zstd_frames
from ..format.layout import Session, SessionError, inside, segment_number, sync_folder
from ..format.manifest import MANIFEST, Manifest, read_manifest, segments_of
from ..format.parquet_reader import checked_paths
from ..format.parquet_writer import PartWriter
from ..format.reader import lenient
from ..format.zstd_frames import Damage

#: Segments per step: the most that an interruption costs.
STEP_SEGMENTS: Final = 4

#: Called with the number of segments done, and of all segments.
Progress = Callable[[int, int], None]


def compact(session: Session, progress: Progress = lambda done, of: None) -> Manifest:
    """Write all sealed segments that are not in Parquet yet; return the manifest. Raises SessionError, OSError."""
    meta = session.read()
    inside(session.parquet_folder, MANIFEST)  # before anything is removed there
    session.parquet_folder.mkdir(mode=0o700, exist_ok=True)
    with _compaction_lock(session):
        manifest = read_manifest(session)
        _check_unchanged(session, manifest)
        _remove_strays(session, manifest)
        pending = [
            path for path in session.segments()
            if path.name not in manifest.segments and segment_number(path) <= meta.sealed
        ]  # fmt: skip
        for first in range(0, len(pending), STEP_SEGMENTS):
            progress(first, len(pending))
            _compact_step(session, manifest, pending[first : first + STEP_SEGMENTS])
        progress(len(pending), len(pending))
        return manifest


@contextlib.contextmanager
def _compaction_lock(session: Session) -> Iterator[None]:
    """Exclude other compactions; recording may continue. Raises SessionError while another one runs."""
    fd = os.open(session.parquet_folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise SessionError(f"{session.name}: another process is compacting it") from error
    finally:
        os.close(fd)


def _check_unchanged(session: Session, manifest: Manifest) -> None:
    """Raises SessionError if a Parquet file is missing, or a segment changed after it was compacted."""
    again = f"try: remove {session.parquet_folder}, and compact again"
    for part in manifest.parts:
        if not (session.parquet_folder / part.path).is_file():
            raise SessionError(f"{session.name}: {part.path} is missing; {again}")
    for name, size in manifest.segments.items():
        path = session.segments_folder / name
        if path.exists() and path.stat().st_size != size:
            raise SessionError(f"{session.name}: {name} changed after it was compacted; {again}")


def _remove_strays(session: Session, manifest: Manifest) -> None:
    named = {part.path for part in manifest.parts}
    for path in session.parquet_folder.rglob("*.parquet"):
        if str(path.relative_to(session.parquet_folder)) not in named:
            path.unlink()


def _compact_step(session: Session, manifest: Manifest, segments: Sequence[Path]) -> None:
    sizes = {path.name: path.stat().st_size for path in segments}
    damages: list[Damage] = []
    first, last = (path.name.partition(".")[0] for path in (segments[0], segments[-1]))
    writer = PartWriter(session.parquet_folder, f"part-{first}-{last}")
    for path in segments:
        writer.add(lenient(path, damages.append))
    parts = writer.finish()
    manifest.segments.update(sizes)
    manifest.parts += parts
    manifest.damaged_bytes += sum(damage.bytes for damage in damages)
    write_atomically(session.parquet_folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    sync_folder(session.parquet_folder)


def drop_segments(session: Session) -> int:
    """Delete the compacted segments of a closed session; return the bytes freed.

    Raises SessionError unless Parquet has a row for each of their records, and while the session is written; OSError.
    """
    with session.lock():
        meta, manifest = session.read(), read_manifest(session)
        if meta.state != "closed":
            raise SessionError(f"{session.name}: not closed; try: gconsole sessions recover {session.name}")
        _check_complete(session, manifest)
        compacted = [path for path in session.segments() if path.name in manifest.segments]
        freed = sum(path.stat().st_size for path in compacted)
        for path in compacted:
            path.unlink()
        sync_folder(session.segments_folder)
        return freed


def _check_complete(session: Session, manifest: Manifest) -> None:
    """Raises SessionError if a record of the compacted segments is missing in Parquet."""
    kept = "its segments are kept"
    if manifest.damaged_bytes:
        damaged = format.size(manifest.damaged_bytes)
        raise SessionError(f"{session.name}: {damaged} of its segments are damaged: {kept}")
    segments = {segment_number(path): path for path in session.segments()}
    rows = records = 0
    for part in manifest.parts:
        try:
            checked_paths(session.parquet_folder, [part])
        except (SessionError, OSError) as error:
            raise SessionError(f"{session.name}: {part.path} changed after it was written: {kept}") from error
        first, last = segments_of(part)
        if any(first <= number <= last for number in segments):
            rows += part.rows
    for path in segments.values():
        if path.name in manifest.segments:
            for item in zstd_frames.scan(path):
                if isinstance(item, Damage) or path.stat().st_size != manifest.segments[path.name]:
                    raise SessionError(f"{session.name}: {path.name} changed after it was compacted: {kept}")
                records += item.label.records
    if rows < records:
        text = f"only {rows} of {records} records are in Parquet: {kept}"
        raise SessionError(f"{session.name}: {text}; try: remove {session.parquet_folder}, and compact again")
