"""Records as NDJSON files, some per table, of which DuckDB parses only the columns that a query uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

import duckdb

from ...core.bus import Published
from ...records import KINDS
from .duckdb_connection import connect
from .layout import SessionError
from .parquet_writer import os_error
from .reader import OnDamage, RecordFilter, decoded
from .table_schema import UNKNOWN, LineFile, is_line_of_segment, line_of, literal, read_lines, table_of
from .writer import OTHER_KINDS
from .zstd_frames import Damage, Label, contents

#: Bytes of a table as NDJSON; what is beyond becomes Parquet, which takes a tenth.
_TABLE_BYTES: Final = 1 << 30
#: Rows that are held in memory while such Parquet is written: 15 MB of GPU samples.
_ROW_GROUP: Final = 30_720


class LineUnpacker:
    """Unpacks records into files of a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` need not exist."""
        self.lines: dict[str, LineFile] = {}
        self.parquet: dict[str, tuple[Path, ...]] = {}
        self._folder = folder

    def add_segment(
        self, path: Path, on_damage: OnDamage, wanted: Collection[str], *, is_own: bool, check: Callable[[], None]
    ) -> None:
        """Unpack the readable records of these tables; `on_damage` receives the rest. Raises OSError, as `check` does.

        `is_own`: this version wrote the segment, so that most lines need not be decoded. `check` is called for each
        frame.
        """
        same = frozenset(table for table in wanted if is_own and is_line_of_segment(table))

        def others_in(kinds: Collection[str]) -> set[str]:
            """Kinds whose records have to be decoded; of another version, any may be among those that are not named."""
            named = {kind for kind in kinds if kind not in same and (kind if kind in KINDS else UNKNOWN) in wanted}
            return named | ({OTHER_KINDS}.intersection(kinds) if not is_own else set())

        def is_wanted(label: Label) -> bool:
            check()
            return not same.isdisjoint(label.kinds) or bool(others_in(label.kinds))

        for item in contents(path, is_wanted):
            if isinstance(item, Damage):
                on_damage(item)
                continue
            frame, raw = item
            if present := same.intersection(frame.label.kinds):
                self._add_lines(raw, present)
            if others := others_in(frame.label.kinds):
                choice = RecordFilter(kinds=None if OTHER_KINDS in others else others)
                self.add(decoded(path, frame, raw, choice, on_damage), set(wanted) - same, check)

    def add(self, records: Iterable[Published], wanted: Collection[str], check: Callable[[], None]) -> None:
        """Unpack the records of these tables; `check` is called for each. Raises OSError, as `check` does."""
        lines: dict[str, list[bytes]] = {}
        for record in records:
            check()
            table = table_of(record)
            if table in wanted:
                held = lines.setdefault(table, [])
                held.append(b"\n" + line_of(table)(record))
                if len(held) >= 1024:
                    self._append(table, lines.pop(table))
        for table, held in lines.items():
            self._append(table, held)

    def _add_lines(self, raw: bytes, tables: frozenset[str]) -> None:
        lines: dict[bytes, list[bytes]] = {}
        for run in _runs_of(tables).finditer(b"\n" + raw):
            lines.setdefault(run[1], []).append(run[0])
        for table, held in lines.items():
            self._append(table.decode(), held)

    def _append(self, table: str, lines: list[bytes]) -> None:
        """Append lines, or runs of lines, that begin with a line break."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{table}.ndjson"
        before = self.lines.get(table, LineFile(path, 0))
        self.lines[table] = LineFile(path, max(before.longest, *map(len, lines)))
        with path.open("ab") as file:
            file.write(b"".join(lines))
            size = file.tell()
        if size > _TABLE_BYTES:
            self._convert(table)

    def convert_all(self) -> None:
        """Make Parquet of all lines: to parse all columns costs as much as three queries of some."""
        for table in tuple(self.lines):
            self._convert(table)

    def _convert(self, table: str) -> None:
        source, made = self.lines.pop(table), self.parquet.get(table, ())
        path = self._folder / f"{table}-{len(made)}.parquet"
        with connect(threads=1) as connection:
            rows = read_lines(table, source)
            how = f"FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {_ROW_GROUP}"
            try:
                connection.execute(f"COPY ({rows}) TO {literal(str(path))} ({how})")
            except duckdb.IOException as error:
                raise os_error(error, path) from error
            except duckdb.InvalidInputException as error:
                raise SessionError(other_version(error)) from error
        source.path.unlink()
        self.parquet[table] = (*made, path)


def other_version(error: duckdb.Error) -> str:
    """Return what is wrong with lines that are not of this version."""
    what = str(error).splitlines()[0].partition(", in ")[2]
    return f"its segments have records of another version ({what}); try: gconsole sessions compact"


@lru_cache(maxsize=64)
def _runs_of(tables: frozenset[str]) -> re.Pattern[bytes]:
    """Runs of lines of one of these kinds, which is group 1. Within a line, a struct may have a `kind`, too."""
    kinds = b"|".join(sorted(table.encode() for table in tables))
    return re.compile(rb'\n\{"kind":"(%s)",[^\n]*(?:\n\{"kind":"\1",[^\n]*){0,31}' % kinds)
