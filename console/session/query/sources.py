"""Sources of the tables of a query: a session, a file of records, or the store of a live console.

A source provides Parquet files, records and metric history by table. Of a session that is what compaction wrote, and
the records after it, unpacked into temporary Parquet files that are removed with the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ...core.bus import Published
from ..format import reader
from ..format.layout import NewerSchema, Session, SessionError
from ..format.manifest import read_manifest
from ..format.parquet_reader import checked_paths
from ..format.parquet_writer import PartWriter
from ..format.table_schema import TABLES
from ..format.zstd_frames import Damage
from .source_tables import SourceTables


class LoadCancelled(Exception):
    """Loading the tables was cancelled."""


class Source(Protocol):
    """Anything whose records can be queried."""

    def tables(self, wanted: Collection[str]) -> SourceTables:
        """Return these tables. Raises SessionError, RecordFileError, OSError."""
        ...


class RecordedSource:
    """A session's folder, or a file of records. Leaving it (`with`) removes what it unpacked."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        """`within` is a folder for unpacked files that its owner removes; default: the system's temporary folder."""
        self.path = path
        self.damage: list[Damage] = []  # what could not be read until now
        self._scratch = tempfile.TemporaryDirectory(prefix="gconsole-query-", dir=within)
        self._loaded: dict[str, tuple[Path, ...]] = {}
        self._cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove unpacked files."""
        self._scratch.cleanup()

    def cancel(self) -> None:
        """Stop unpacking: `tables` raises LoadCancelled. May be called from another thread or a signal handler."""
        self._cancelled = True

    @property
    def scratch(self) -> Path:
        """A folder that is removed with the source."""
        return Path(self._scratch.name)

    def tables(self, wanted: Collection[str]) -> SourceTables:
        """Return these tables; records not compacted yet are unpacked. Raises SessionError, OSError, LoadCancelled."""
        self._refuse_newer()
        new = [table for table in TABLES if table in wanted and table not in self._loaded]
        if new:
            self._loaded.update(dict.fromkeys(new, ()))
            for table, path in chain(self._compacted(new), self._unpacked(new)):
                self._loaded[table] = (*self._loaded[table], path)
        return SourceTables(files={table: files for table, files in self._loaded.items() if files})

    def _refuse_newer(self) -> None:
        """Raises NewerSchema; the records of a session whose session.json is damaged can be queried."""
        if self.path.is_dir():
            try:
                Session(self.path).read()
            except NewerSchema:
                raise
            except SessionError:
                return

    def _compacted(self, wanted: Sequence[str]) -> list[tuple[str, Path]]:
        if not self.path.is_dir():
            return []
        session = Session(self.path)
        parts = [part for part in read_manifest(session).parts if part.table in wanted]
        paths = checked_paths(session.parquet_folder, parts)
        return [(part.table, path) for part, path in zip(parts, paths, strict=True)]

    def _unpacked(self, wanted: Sequence[str]) -> list[tuple[str, Path]]:
        """Write what is not Parquet yet as Parquet."""
        folder = self.scratch / f"unpacked-{len(list(self.scratch.iterdir()))}"
        writer = PartWriter(folder, "part", is_temporary=True)
        choice = reader.RecordFilter() if "unknown" in wanted else reader.RecordFilter(kinds=wanted)
        if self.path.is_dir():
            done = read_manifest(Session(self.path)).segments
            for segment in reader.segment_files(self.path):
                if segment.name not in done:
                    writer.add(self._until_cancelled(reader.lenient(segment, self._note_damage, choice)), wanted)
        else:
            writer.add(self._until_cancelled(reader.records(self.path, choice)), wanted)
        return [(part.table, folder / part.path) for part in writer.finish()]

    def _until_cancelled(self, records: Iterable[Published]) -> Iterator[Published]:
        for record in records:
            if self._cancelled:
                raise LoadCancelled
            yield record

    def _note_damage(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)
