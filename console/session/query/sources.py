"""Sources of the tables of a query: a session, a file of records, or the store of a live console.

A source provides Parquet files, records and metric history by table. Of a session that is what compaction wrote, and
the records after it, unpacked into temporary files of lines that are removed with the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..format import reader
from ..format.layout import NewerSchema, Session, SessionError, segment_number
from ..format.line_files import LineUnpacker
from ..format.manifest import CompactedRange, Manifest, ParquetPart, check_part, read_manifest, segments_of, survey
from ..format.parquet_reader import checked_paths
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

    def __init__(self, path: Path, within: Path | None = None, *, is_kept: bool = False) -> None:
        """`within` is a folder for unpacked files that its owner removes; default: the system's temporary folder.

        `is_kept`: for many queries, or one that reads a table often; then unpacked files are Parquet, too.
        """
        self.path, self._is_kept = path, is_kept
        self.damage: list[Damage] = []  # what could not be read until now
        self._scratch = tempfile.TemporaryDirectory(prefix="gconsole-query-", dir=within)
        self._unpacked = LineUnpacker(self.scratch / "unpacked")
        self._files: dict[str, tuple[Path, ...]] = {}
        self._loaded: set[str] = set()
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
        is_own = self._refuse_newer()
        new = [table for table in TABLES if table in wanted and table not in self._loaded]
        if new and self.path.is_dir():
            files, segments = self.stored(new)
            for table, path in files:
                self._files[table] = (*self._files.get(table, ()), path)
            for path, tables in segments.items():
                self._unpacked.add_segment(path, self.note_damage, tables, is_own=is_own, check=self._check_cancelled)
        elif new:
            self._unpacked.add(reader.records(self.path), new, self._check_cancelled)
        if self._is_kept:
            self._unpacked.convert_all()
        self._loaded.update(new)
        parquet = self._unpacked.parquet
        present = {*self._files, *parquet}
        stored = {table: (*self._files.get(table, ()), *parquet.get(table, ())) for table in present}
        return SourceTables(stored, dict(self._unpacked.lines))

    def _refuse_newer(self) -> bool:
        """Whether this version wrote all records. Raises NewerSchema; a session with a damaged session.json is read."""
        if not self.path.is_dir():
            return False
        try:
            return Session(self.path).read().is_own
        except NewerSchema:
            raise
        except SessionError:
            return False

    def stored(self, wanted: Sequence[str]) -> tuple[list[tuple[str, Path]], dict[Path, list[str]]]:
        """Return the Parquet files of these tables; and the segments that are not compacted or have to stand in for a
        damaged file, with the tables to read from each. Raises SessionError, OSError."""
        session = Session(self.path)
        pieces, damages = survey(session)
        for damage in damages:
            self.note_damage(damage)
        whole = {piece.name: piece for piece in pieces if isinstance(piece, Path)}
        only_parquet = [part for piece in pieces if isinstance(piece, CompactedRange) for part in piece.parts]
        manifest = Manifest() if any(damage.what == "replaced" for damage in damages) else read_manifest(session)
        instead = {path: list(wanted) for name, path in whole.items() if name not in manifest.segments}
        usable = [part for part in only_parquet if part.table in wanted]
        optional = [part for part in manifest.parts if part.table in wanted and part not in only_parquet]
        unusable = {(segments_of(part), part.table) for part in optional if not self._is_sound(session, part)}
        usable += [part for part in optional if (segments_of(part), part.table) not in unusable]
        for (first, last), table in sorted(unusable):
            for path in whole.values():
                if first <= segment_number(path) <= last:
                    instead.setdefault(path, []).append(table)
        paths = checked_paths(session.parquet_folder, usable)
        files = [(part.table, path) for part, path in zip(usable, paths, strict=True)]
        return files, dict(sorted(instead.items()))

    def _is_sound(self, session: Session, part: ParquetPart) -> bool:
        """Whether a file is what compaction wrote; versions before left no digest that could show it."""
        if check_part(session, part):
            self.note_damage(Damage(session.parquet_folder / part.path, 0, 0, "replaced"))
            return False
        return bool(part.digest)

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise LoadCancelled

    def note_damage(self, damage: Damage) -> None:
        """Remember what could not be read."""
        if damage not in self.damage:
            self.damage.append(damage)
