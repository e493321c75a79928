"""Where the tables of a question come from: a session, a file of records, or the store of a console that is watching.

A source gives Parquet files, or columns in memory, by table. Of a session that is what compaction made, and what came
after it, unpacked into files of their own that are gone with the source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from ...core.bus import Published
from ..format import reader
from ..format.layout import NewerSchema, Session, SessionError
from ..format.parquet_guard import looked_at
from ..format.to_arrow import TABLES
from ..format.zstd_frames import Damage
from ..manage.compact import PartWriter, compacted


@dataclass(frozen=True)
class Tables:
    """What there is of each table; one that is not named has no rows."""

    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    columns: dict[str, pa.Table] = field(default_factory=dict)


class GivenUp(Exception):
    """Nobody wants the tables any more."""


class Source(Protocol):
    """Whatever can be asked."""

    def tables(self, wanted: Collection[str]) -> Tables:
        """These tables. Raises SessionError, RecordFileError, OSError."""
        ...


class RecordedSource:
    """A session's folder, or a file of records. Leave it (`with`) to remove what it unpacked."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        """`within` is a folder for what is unpacked, which its owner removes; else it is one of the system's."""
        self.path = path
        self.damage: list[Damage] = []  # what could not be read so far
        self._scratch = tempfile.TemporaryDirectory(prefix="gconsole-query-", dir=within)
        self._loaded: dict[str, tuple[Path, ...]] = {}
        self._given_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was unpacked."""
        self._scratch.cleanup()

    def give_up(self) -> None:
        """Let what is being unpacked be: `tables` raises GivenUp. From another thread, or a signal."""
        self._given_up = True

    @property
    def scratch(self) -> Path:
        """A folder that is gone with the source."""
        return Path(self._scratch.name)

    def tables(self, wanted: Collection[str]) -> Tables:
        self._refuse_newer()
        new = [table for table in TABLES if table in wanted and table not in self._loaded]
        if new:
            self._loaded.update(dict.fromkeys(new, ()))
            for table, path in chain(self._compacted(new), self._unpacked(new)):
                self._loaded[table] = (*self._loaded[table], path)
        return Tables(files={table: files for table, files in self._loaded.items() if files})

    def _refuse_newer(self) -> None:
        """Raises NewerSchema; what else is wrong with a session.json does not keep its records from being asked."""
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
        return [
            (part.table, looked_at(session.parquet_folder, part))
            for part in compacted(session).parts if part.table in wanted
        ]  # fmt: skip

    def _unpacked(self, wanted: Sequence[str]) -> list[tuple[str, Path]]:
        """What is not Parquet yet, as Parquet."""
        folder = self.scratch / f"unpacked-{len(list(self.scratch.iterdir()))}"
        writer = PartWriter(folder, "part", passing=True)
        choice = reader.Choice() if "unknown" in wanted else reader.Choice(kinds=wanted)
        if self.path.is_dir():
            done = compacted(Session(self.path)).segments
            for segment in reader.segment_files(self.path):
                if segment.name not in done:
                    writer.add(self._while_wanted(reader.lenient(segment, self._hear_of_damage, choice)), wanted)
        else:
            writer.add(self._while_wanted(reader.records(self.path, choice)), wanted)
        return [(part.table, folder / part.path) for part in writer.finish()]

    def _while_wanted(self, records: Iterable[Published]) -> Iterator[Published]:
        for record in records:
            if self._given_up:
                raise GivenUp
            yield record

    def _hear_of_damage(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)
