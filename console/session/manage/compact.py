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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ...core.bus import Published
from ...text.atomic_files import write_atomically
from ..format.layout import Session, SessionError, inside, sync_folder
from ..format.manifest import MANIFEST, Compacted, ParquetPart, compacted
from ..format.reader import lenient
from ..format.table_schema import TABLES, line_of, table_of
from ..format.zstd_frames import Damage

#: So many segments are one step: what an interruption costs at most.
STEP_SEGMENTS: Final = 4
#: Characters of JSON held in memory before a file is written of the largest table: some 60,000 records of GPUs.
BUFFER_CHARS: Final = 72 << 20

if TYPE_CHECKING:
    import duckdb

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
    for name, size in done.segments.items():
        path = session.segments_folder / name
        if path.exists() and path.stat().st_size != size:
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


class PartWriter:
    """Writes records into the tables of a folder, a file when enough are together; memory stays bounded.

    Everything is on disk once `finish` returns, unless `is_temporary`: files that nobody keeps, written quickly.
    """

    def __init__(self, folder: Path, prefix: str, *, is_temporary: bool = False) -> None:
        self._folder, self._prefix, self._is_temporary = folder, prefix, is_temporary
        self._lines: dict[tuple[str, str], list[str]] = {}
        self._sizes: Counter[tuple[str, str]] = Counter()
        self._size = 0
        self._written: Counter[tuple[str, str]] = Counter()
        self._parts: list[ParquetPart] = []

    def add(self, records: Iterable[Published], wanted: Collection[str] = TABLES) -> None:
        """Write those that belong into the wanted tables. Raises OSError."""
        for record in records:
            table = table_of(record)
            if table in wanted:
                self.add_lines(table, hour_of(record.rx), [line_of(table)(record).decode()])

    def add_lines(self, table: str, hour: str, lines: Sequence[str]) -> None:
        """Write records of one table that all arrived in that hour (`hour_of`), as `line_of` formats them.

        Raises OSError.
        """
        self._lines.setdefault((table, hour), []).extend(lines)
        size = sum(map(len, lines))
        self._sizes[table, hour] += size
        self._size += size
        while self._size > BUFFER_CHARS:
            self._write(self._sizes.most_common(1)[0][0])

    def finish(self) -> tuple[ParquetPart, ...]:
        """Write what is left; return all the files. Raises OSError."""
        for key in sorted(self._lines):
            self._write(key)
        if not self._is_temporary:
            for folder in {(self._folder / part.path).parent for part in self._parts}:
                sync_folder(folder)
                sync_folder(folder.parent)
        return tuple(self._parts)

    def _write(self, key: tuple[str, str]) -> None:
        from ..format.to_parquet import write_file  # DuckDB takes long to load

        (table, hour), lines = key, self._lines.pop(key)
        self._size -= self._sizes.pop(key)
        name = f"{table}/hour={hour}/{self._prefix}-{self._written[key]}.parquet"
        self._written[key] += 1
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = inside(self._folder, name)
        rows = write_file(self._connection, path, table, lines, is_temporary=self._is_temporary)
        if not self._is_temporary:
            _sync(path)
        self._parts.append(ParquetPart(name, table, hour, rows))

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        from ..format.to_parquet import connect

        return connect()


def hour_of(rx: int) -> str:
    """Return the hour of the console's clock, UTC, by which tables are partitioned."""
    return _hour(rx // 3_600_000_000_000)


@lru_cache(maxsize=64)
def _hour(hours: int) -> str:
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


__all__ = ["MANIFEST", "Compacted", "ParquetPart", "PartWriter", "compact", "compacted", "hour_of", "pending"]
