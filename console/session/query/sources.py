"""Sources of the tables of a query: a session, a file of records, or the store of a live console.

A source provides Parquet files, records and metric history by table. Of a session that is what compaction wrote, and
the records after it, unpacked into temporary Parquet files that are removed with the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..format import reader
from ..format.layout import NewerSchema, Session, SessionError, segment_number
from ..format.manifest import CompactedRange, Manifest, ParquetPart, check_part, read_manifest, segments_of, survey
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

    def __init__(self, path: Path, within: Path | None = None, *, is_temporary: bool = True) -> None:
        """`within` is a folder for unpacked files that its owner removes; default: the system's temporary folder.

        `is_temporary`: of unpacked files; false: they are those of compaction.
        """
        self.path, self._is_temporary = path, is_temporary
        self.damage: list[Damage] = []  # what could not be read until now
        self._scratch = tempfile.TemporaryDirectory(prefix="gconsole-query-", dir=within)
        self._loaded: dict[str, tuple[Path, ...]] = {}
        self._cancelled = self._is_own = False

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
            for table, path in self._session_files(new) if self.path.is_dir() else self._unpacked({self.path: new}):
                self._loaded[table] = (*self._loaded[table], path)
        return SourceTables(files={table: files for table, files in self._loaded.items() if files})

    def _refuse_newer(self) -> None:
        """Raises NewerSchema; the records of a session whose session.json is damaged can be queried."""
        if self.path.is_dir():
            try:
                self._is_own = Session(self.path).read().is_own
            except NewerSchema:
                raise
            except SessionError:
                self._is_own = False

    def _session_files(self, wanted: Sequence[str]) -> list[tuple[str, Path]]:
        """Return the Parquet files of a session: of compaction, and of segments that are not compacted or have to
        stand in for a damaged file."""
        session = Session(self.path)
        pieces, damages = survey(session)
        for damage in damages:
            self._note_damage(damage)
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
        return [(part.table, path) for part, path in zip(usable, paths, strict=True)] + self._unpacked(instead)

    def _is_sound(self, session: Session, part: ParquetPart) -> bool:
        """Whether a file is what compaction wrote; versions before left no digest that could show it."""
        if check_part(session, part):
            self._note_damage(Damage(session.parquet_folder / part.path, 0, 0, "replaced"))
            return False
        return bool(part.digest)

    def _unpacked(self, wanted: Mapping[Path, Sequence[str]]) -> list[tuple[str, Path]]:
        """Write these tables of segments or of a file of records as Parquet."""
        folder = self.scratch / f"unpacked-{len(list(self.scratch.iterdir()))}"
        writer = PartWriter(folder, "part", is_temporary=self._is_temporary)
        for path, tables in sorted(wanted.items()):
            if path != self.path:
                writer.add_segment(path, self._note_damage, tables, is_own=self._is_own, check=self._check_cancelled)
                continue
            for record in reader.records(path):
                self._check_cancelled()
                writer.add([record], tables)
        return [(part.table, folder / part.path) for part in writer.finish()]

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise LoadCancelled

    def _note_damage(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)
