"""Parquet out of segments: one table a kind, partitioned by the hour of arrival, in steps that can be interrupted.

    parquet/compacted.json                            what is done: `Compacted`, replaced in one step
    parquet/gpu/hour=2026-11-21T08/part-000001-000004-0.parquet
                                                      of the segments 1 to 4, the first file of this hour

A step takes a few segments, writes all files of them and sees them on the disk, and only then says so in
compacted.json. A file that it does not name is of a step that was interrupted: nobody reads it, and the next run
removes it. The segments stay as they are: they are the session, Parquet is how other tools read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ...text.atomic_files import write_atomically
from ...text.format import size
from ..format import zstd_frames
from ..format.layout import Session, SessionError, inside, sync_folder
from ..format.manifest import MANIFEST, Compacted, ParquetPart, compacted, segments_of
from ..format.parquet_writer import PartWriter
from ..format.reader import lenient
from ..format.zstd_frames import Damage

if TYPE_CHECKING:
    pass

#: So many segments are one step: what an interruption costs at most.
STEP_SEGMENTS: Final = 4
#: Characters of JSON held in memory before a file is written of the largest table: some 60,000 records of GPUs.
BUFFER_CHARS: Final = 72 << 20


#: Called with progress: segments done, segments in all.
Progress = Callable[[int, int], None]


def pending(session: Session, done: Compacted) -> list[Path]:
    """Segments not yet in Parquet, without the last one of a session that is still open. Raises SessionError."""
    sealed = session.read().sealed
    return [
        path for path in session.segments()
        if path.name not in done.segments and int(path.name.partition(".")[0]) <= sealed
    ]  # fmt: skip


def compact(session: Session, progress: Progress = lambda done, of: None) -> Compacted:
    """Turn all sealed segments into Parquet, beginning where the last run ended. Raises SessionError, OSError."""
    session.read()
    inside(session.parquet_folder, MANIFEST)  # before anything is removed there
    session.parquet_folder.mkdir(mode=0o700, exist_ok=True)
    with _alone(session):
        done = compacted(session)
        _check(session, done)
        _remove_strays(session, done)
        todo = pending(session, done)
        for first in range(0, len(todo), STEP_SEGMENTS):
            progress(first, len(todo))
            _step(session, done, todo[first : first + STEP_SEGMENTS])
        progress(len(todo), len(todo))
        return done


@contextlib.contextmanager
def _alone(session: Session) -> Iterator[None]:
    """Nobody else compacts it meanwhile; recording may go on. Raises SessionError where somebody does."""
    fd = os.open(session.parquet_folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise SessionError(f"{session.name}: somebody else compacts it now") from error
    finally:
        os.close(fd)


def _check(session: Session, done: Compacted) -> None:
    """Raises SessionError where a file is gone, or a segment changed after it was turned into Parquet."""
    for part in done.parts:
        if not (session.parquet_folder / part.path).is_file():
            text = f"{session.name}: {part.path} is gone; try: remove {session.parquet_folder}, and compact again"
            raise SessionError(text)
    for name, length in done.segments.items():
        path = session.segments_folder / name
        if path.exists() and path.stat().st_size != length:
            text = f"{name} has changed since; try: remove {session.parquet_folder}, and compact again"
            raise SessionError(f"{session.name}: {text}")


def _remove_strays(session: Session, done: Compacted) -> None:
    known = {part.path for part in done.parts}
    for path in session.parquet_folder.rglob("*.parquet"):
        if str(path.relative_to(session.parquet_folder)) not in known:
            path.unlink()


def _step(session: Session, done: Compacted, segments: Sequence[Path]) -> None:
    sizes = {path.name: path.stat().st_size for path in segments}
    lost: list[Damage] = []
    first, last = (path.name.partition(".")[0] for path in (segments[0], segments[-1]))
    writer = PartWriter(session.parquet_folder, f"part-{first}-{last}")
    for path in segments:
        writer.add(lenient(path, lost.append))
    parts = writer.finish()
    done.segments.update(sizes)
    done.parts += parts
    done.damaged_bytes += sum(damage.bytes for damage in lost)
    write_atomically(session.parquet_folder / MANIFEST, msgspec.json.format(msgspec.json.encode(done), indent=1))
    sync_folder(session.parquet_folder)


def drop_segments(session: Session) -> int:
    """Remove the segments that compaction has made Parquet of; how many bytes that frees.

    Only where that Parquet is there, and has a row for every record of theirs. Raises SessionError where it has not,
    where the session is not closed, or is being written to; OSError.
    """
    with session.lock():
        meta, done = session.read(), compacted(session)
        if meta.state != "closed":
            raise SessionError(f"{session.name}: it is not closed; try: gconsole sessions recover {session.name}")
        _check_compacted(session, done)
        gone = [path for path in session.segments() if path.name in done.segments]
        freed = sum(path.stat().st_size for path in gone)
        for path in gone:
            path.unlink()
        sync_folder(session.segments_folder)
        return freed


def _check_compacted(session: Session, done: Compacted) -> None:
    """Raises SessionError where anything of the segments is not in Parquet."""
    from ..format.parquet_reader import checked_paths  # DuckDB takes long to load

    why = "its segments stay"
    if done.damaged_bytes:
        raise SessionError(f"{session.name}: {size(done.damaged_bytes)} of its segments are damaged: {why}")
    there = {int(path.name.partition(".")[0]): path for path in session.segments()}
    rows = records = 0
    for part in done.parts:
        try:
            checked_paths(session.parquet_folder, [part])
        except (SessionError, OSError) as error:
            raise SessionError(f"{session.name}: {part.path} is not as it was written: {why}") from error
        if _covers_any(part, there):
            rows += part.rows
    for path in there.values():
        if path.name in done.segments:
            for item in zstd_frames.scan(path):
                if isinstance(item, Damage) or path.stat().st_size != done.segments[path.name]:
                    raise SessionError(f"{session.name}: {path.name} is not what Parquet was made of: {why}")
                records += item.label.records
    if rows < records:
        text = f"{rows} of {records} records are Parquet"
        raise SessionError(f"{session.name}: {text}: {why}; try: remove {session.parquet_folder}, and compact again")


def _covers_any(part: ParquetPart, there: Collection[int]) -> bool:
    """Whether any segment that this was made of is still there."""
    first, last = segments_of(part)
    return any(first <= number <= last for number in there)
