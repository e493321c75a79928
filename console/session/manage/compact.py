"""Compaction: write segments as Parquet, a table per kind and hour of arrival, in steps that may be interrupted.

    parquet/compacted.json                            the `Manifest`, replaced atomically
    parquet/gpu/hour=2026-11-21T08/part-000004-000004-0.parquet
                                                      of segment 4, first file of this hour

A step writes and syncs all files of a segment as drafts, gives them their names, and adds them to the manifest with
their digests. Files that the manifest does not name belong to an interrupted step: they are never read, and the next
run deletes them. Segments are kept until `drop_segments`, which reads every record back and compares it.

A recorder runs this module as a process of low priority (`main`) whenever segments were sealed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ...core.bus import Published
from ...records import encode
from ...text import format
from ...text.memory_limit import limit_memory
from ..format.layout import Session, SessionError, inside, segment_number, sync_folder, write_checked
from ..format.manifest import (
    MANIFEST,
    CompactedRange,
    Manifest,
    ParquetPart,
    check_part,
    check_seal,
    read_manifest,
    segments_of,
    survey,
)
from ..format.parquet_writer import DRAFT_SUFFIX, PartWriter
from ..format.reader import compacted_records, lenient
from ..format.zstd_frames import Damage

#: Called with the number of segments done, and of all segments.
Progress = Callable[[int, int], None]
#: Added to the niceness of a compaction beside a recording.
_NICE: Final = 10


def compact(session: Session, progress: Progress = lambda done, of: None, *, checked: bool = True) -> Manifest:
    """Write all sealed segments that are not in Parquet yet; return the manifest. Raises SessionError, OSError.

    `checked`: first, what was compacted before is read and compared with its digests.
    """
    meta = session.read()
    if meta.state == "recording" and not session.is_being_written():
        raise SessionError(f"{session.name}: its console crashed; first: gconsole sessions recover {session.name}")
    inside(session.parquet_folder, MANIFEST)  # before anything is removed there
    session.parquet_folder.mkdir(mode=0o700, exist_ok=True)
    with _compaction_lock(session):
        manifest = read_manifest(session)
        if checked:
            _check_unchanged(session, manifest)
        _remove_strays(session, manifest)
        pending = [
            path for path in session.segments()
            if path.name not in manifest.segments and segment_number(path) <= meta.sealed
        ]  # fmt: skip
        seals = {seal.number: seal for seal in meta.seals}
        for done, path in enumerate(pending):
            progress(done, len(pending))
            seal = seals.get(segment_number(path))
            _compact_segment(session, manifest, path, [] if seal is None else check_seal(path, seal))
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
        for damage in check_part(session, part):
            what = "missing" if damage.what == "missing" else "damaged: its checksum is wrong"
            raise SessionError(f"{session.name}: {part.path} is {what}; {again}")
    for name, size in manifest.segments.items():
        path = session.segments_folder / name
        if path.exists() and path.stat().st_size != size:
            raise SessionError(f"{session.name}: {name} changed after it was compacted; {again}")


def _remove_strays(session: Session, manifest: Manifest) -> None:
    named = {part.path for part in manifest.parts}
    for path in (*session.parquet_folder.rglob("*.parquet"), *session.parquet_folder.rglob(f"*{DRAFT_SUFFIX}")):
        if str(path.relative_to(session.parquet_folder)) not in named:
            path.unlink()


def _compact_segment(session: Session, manifest: Manifest, path: Path, damages: list[Damage]) -> None:
    size, number = path.stat().st_size, path.name.partition(".")[0]
    try:
        writer = PartWriter(session.parquet_folder, f"part-{number}-{number}")
        writer.add_segment(path, damages.append, is_own=session.read().is_own)
        manifest.parts += writer.finish()
    except BaseException:  # a full disk, or the end of this process: the next run may be far away
        _remove_strays(session, manifest)
        raise
    manifest.segments[path.name] = size
    manifest.session = session.read().id
    manifest.damaged_bytes += sum(damage.bytes for damage in damages)
    write_checked(session.parquet_folder / MANIFEST, manifest)
    sync_folder(session.parquet_folder)


def drop_segments(session: Session, progress: Progress = lambda done, of: None) -> int:
    """Delete the compacted segments of a closed session; return the bytes freed.

    Each segment is deleted once all its records were read back from Parquet and are the same. Raises SessionError for
    the first one that differs, which is kept, and while the session is written; OSError.
    """
    with session.lock():
        meta, manifest = session.read(), read_manifest(session)
        if meta.state != "closed":
            raise SessionError(f"{session.name}: not closed; try: gconsole sessions recover {session.name}")
        lost = next((damage for damage in survey(session)[1] if damage.is_loss), None)
        if lost is not None:
            raise SessionError(f"{session.name}: {lost}: its segments are kept")
        if manifest.damaged_bytes:
            damaged = format.size(manifest.damaged_bytes)
            raise SessionError(f"{session.name}: {damaged} of its segments are damaged: its segments are kept")
        freed = 0
        parts: dict[tuple[int, int], list[ParquetPart]] = {}
        for part in manifest.parts:
            parts.setdefault(segments_of(part), []).append(part)
        compacted = [path for path in session.segments() if path.name in manifest.segments]
        steps: dict[tuple[int, int], list[Path]] = {}
        for path in compacted:
            number = segment_number(path)
            step = next((step for step in parts if step[0] <= number <= step[1]), (number, number))
            steps.setdefault(step, []).append(path)
        for (first, last), paths in steps.items():
            progress(compacted.index(paths[0]), len(compacted))
            _check_complete(session, manifest, paths, CompactedRange(first, last, tuple(parts.get((first, last), ()))))
            freed += sum(path.stat().st_size for path in paths)
            for path in paths:
                path.unlink()
            sync_folder(session.segments_folder)
        progress(len(compacted), len(compacted))
        return freed


def _check_complete(session: Session, manifest: Manifest, paths: list[Path], step: CompactedRange) -> None:
    """Raises SessionError unless the Parquet of a compaction step has exactly the records of its segments."""
    kept = "its segments are kept"
    for part in step.parts:
        if check_part(session, part):
            raise SessionError(f"{session.name}: {part.path} changed after it was written: {kept}")
    expected = {name for name in manifest.segments if step.first <= segment_number(Path(name)) <= step.last}
    if missing := expected - {path.name for path in paths}:
        raise SessionError(f"{session.name}: {min(missing)} is missing, so its Parquet cannot be compared: {kept}")
    damages: list[Damage] = []
    recorded = _Fingerprint.of(record for path in paths for record in lenient(path, damages.append))
    if damages or any(path.stat().st_size != manifest.segments[path.name] for path in paths):
        name = damages[0].path.name if damages else paths[0].name
        raise SessionError(f"{session.name}: {name} changed after it was compacted: {kept}")
    compacted = _Fingerprint.of(compacted_records(session, step))
    if compacted != recorded:
        text = f"only {compacted.records} of {recorded.records} records are in Parquet"
        if compacted.records >= recorded.records:
            text = f"Parquet has other records than {paths[0].name}"
        text += f": {kept}; try: remove {session.parquet_folder}, and compact again"
        raise SessionError(f"{session.name}: {text}")


class _Fingerprint(msgspec.Struct, frozen=True):
    """Records regardless of their order: how many, and the sum of their digests."""

    records: int
    total: int

    @classmethod
    def of(cls, records: Iterable[Published]) -> _Fingerprint:
        count = total = 0
        for record in records:
            count += 1
            total += int(hashlib.blake2b(encode(record), digest_size=16).hexdigest(), 16)
        return cls(count, total)


def main() -> None:
    """Compact the session at the path in the arguments, for its recorder: exit status 0, or 1 if it failed."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    os.nice(_NICE)
    limit_memory()
    try:
        compact(Session(Path(sys.argv[1])), checked=False)  # each run would read all that those before have written
    except (SessionError, OSError):
        sys.exit(1)


if __name__ == "__main__":
    main()
