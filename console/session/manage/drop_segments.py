"""Segments that Parquet stands for are taken away: half of a session's bytes, once everything in them was counted."""

from __future__ import annotations

from collections.abc import Collection

from ...text.format import size
from ..format import zstd_frames
from ..format.layout import Session, SessionError, sync_folder
from ..format.manifest import Compacted, ParquetPart, compacted, segments_of
from ..format.zstd_frames import Damage


def drop_segments(session: Session) -> int:
    """Remove the segments that compaction has made Parquet of; how many bytes that frees.

    Only where that Parquet is there, and has a row for every record of theirs. Raises SessionError where it has not,
    where the session is not closed, or is being written to; OSError.
    """
    with session.lock():
        meta, done = session.read(), compacted(session)
        if meta.state != "closed":
            raise SessionError(f"{session.name}: it is not closed; try: gconsole sessions recover {session.name}")
        _check(session, done)
        gone = [path for path in session.segments() if path.name in done.segments]
        freed = sum(path.stat().st_size for path in gone)
        for path in gone:
            path.unlink()
        sync_folder(session.segments_folder)
        return freed


def _check(session: Session, done: Compacted) -> None:
    """Raises SessionError where anything of the segments is not in Parquet."""
    from ..format.parquet_guard import checked_paths  # DuckDB takes long to load

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
        if _is_of(part, there):
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


def _is_of(part: ParquetPart, there: Collection[int]) -> bool:
    """Whether any segment that this was made of is still there."""
    first, last = segments_of(part)
    return any(first <= number <= last for number in there)
