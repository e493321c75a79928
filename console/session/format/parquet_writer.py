"""Parquet files of records: one file per table and hour of arrival, sorted by entity and time."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import duckdb

from ...core.bus import Published
from ...records import KINDS, BadRecord, decode
from .duckdb_connection import connect, register_lines
from .layout import digest_of, inside, sync_file, sync_folder
from .manifest import ParquetPart
from .reader import OnDamage, RecordFilter, ignore_damage, lenient
from .table_schema import (
    TABLES,
    columns_of,
    is_line_of_segment,
    key_values,
    line_of,
    literal,
    parsed_lines,
    quoted,
    table_of,
)
from .zstd_frames import Damage, Frame, Label, contents

#: Sort order: those of these columns that a table has; entity first, then time.
_ORDER: Final = (
    "node", "uuid", "link", "device", "port", "capture", "job", "pid", "start_ticks", "agent", "mono", "seq",
)  # fmt: skip
#: Rows. Unit of reading and skipping in a file.
ROW_GROUP: Final = 122_880
#: zstd level. On `gpu` records 9 makes a file 1 % smaller and takes a seventh longer, 15 makes it 6 % smaller.
_ZSTD_LEVEL: Final = 3
#: Suffix of the columns with `t` and `rx` as timestamps in UTC, µs: for other programs. Our readers take the integers.
UTC_SUFFIX: Final = "_utc"
#: Suffix of a file that is not complete: it must not match `*.parquet`, which other programs read.
DRAFT_SUFFIX: Final = ".draft"
#: Characters of JSON held in memory before a file is written of the largest table: some 60,000 records of GPUs.
BUFFER_CHARS: Final = 72 << 20
_KIND_START: Final = len('{"kind":"')


class PartWriter:
    """Writes records into the tables of a folder, a file whenever the buffer is full; memory stays bounded.

    When `finish` returns, all files are synced to disk and have their names; until then they are drafts.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._lines: dict[tuple[str, str], list[str]] = {}
        self._sizes: Counter[tuple[str, str]] = Counter()
        self._size = 0
        self._written: Counter[tuple[str, str]] = Counter()
        self._parts: list[ParquetPart] = []
        self._segment = Path()  # that is being added
        self._on_damage: OnDamage = ignore_damage

    def add_segment(
        self, path: Path, on_damage: OnDamage, wanted: Collection[str] = TABLES, *, is_own: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Write the readable records of a segment; `on_damage` receives the rest. Raises OSError, as `check` does.

        `is_own`: this version wrote the segment, so that most lines need not be decoded. `check` is called for each
        frame.
        """
        self._segment, self._on_damage = path, on_damage
        choice = RecordFilter() if "unknown" in wanted else RecordFilter(kinds=wanted)

        def is_wanted(label: Label) -> bool:
            check()
            return choice.may_match(label.kinds, label.first_rx, label.last_rx)

        if not is_own:
            for record in lenient(path, on_damage, choice):
                check()
                self.add([record], wanted)
            return
        for item in contents(path, is_wanted):
            if isinstance(item, Damage):
                on_damage(item)
            else:
                self._add_frame(*item, wanted)

    def _add_frame(self, frame: Frame, raw: bytes, wanted: Collection[str]) -> None:
        hour = hour_of(frame.label.first_rx)
        is_one_hour = hour == hour_of(frame.label.last_rx)
        tables: dict[str, list[str]] = {}
        for line in raw.decode(errors="replace").split("\n")[:-1]:
            tables.setdefault(line[_KIND_START : line.find('"', _KIND_START)], []).append(line)
        for table, lines in tables.items():
            if is_one_hour and table in KINDS and is_line_of_segment(table):
                if table in wanted:
                    self.add_lines(table, hour, lines)
            else:
                self.add(self._decoded(lines), wanted)

    def _decoded(self, lines: Iterable[str]) -> Iterable[Published]:
        """The records in the lines of the segment that is being added; lines of another version are damage."""
        for line in lines:
            try:
                yield decode(line.encode())
            except BadRecord:
                self._on_damage(Damage(self._segment, 0, len(line), "damaged"))

    def add(self, records: Iterable[Published], wanted: Collection[str] = TABLES) -> None:
        """Write the records of the wanted tables. Raises OSError."""
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
        """Write the buffer; return all files. Raises OSError."""
        for key in sorted(self._lines):
            self._write(key)
        for part in self._parts:
            path = inside(self._folder, part.path)
            _draft_of(path).replace(path)
        for folder in {(self._folder / part.path).parent for part in self._parts}:
            sync_folder(folder)
            sync_folder(folder.parent)
        return tuple(self._parts)

    def _write(self, key: tuple[str, str]) -> None:
        (table, hour), lines = key, self._lines.pop(key)
        self._size -= self._sizes.pop(key)
        name = f"{table}/hour={hour}/{self._prefix}-{self._written[key]}.parquet"
        self._written[key] += 1
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = _draft_of(inside(self._folder, name))
        draft.unlink(missing_ok=True)  # a link must not be followed
        try:
            rows = write_file(self._connection, draft, table, lines)
        except duckdb.InvalidInputException:  # a line that was not decoded is not of this version after all
            lines = [line_of(table)(record).decode() for record in self._decoded(lines)]
            rows = write_file(self._connection, draft, table, lines)
        sync_file(draft)
        self._parts.append(ParquetPart(name, table, hour, rows, digest_of(draft)))

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return connect(threads=1)  # a second thread would add a third to the CPU time


def _draft_of(path: Path) -> Path:
    return path.with_name(path.name + DRAFT_SUFFIX)


def hour_of(rx: int) -> str:
    """Return the hour of the console's clock, UTC, by which tables are partitioned."""
    return _hour(rx // 3_600_000_000_000)


@lru_cache(maxsize=64)
def _hour(hours: int) -> str:
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H")


def write_file(connection: duckdb.DuckDBPyConnection, path: Path, table: str, lines: Sequence[str]) -> int:
    """Write records, as `table_schema.line_of` formats them, into one Parquet file; return the number of rows.

    Raises OSError; then a partial file may exist.
    """
    names = {column.name for column in columns_of(table)}
    order = ", ".join(quoted(name) for name in _ORDER if name in names)
    records = parsed_lines(table, "lines")
    # TRY: nodes may send instants that no timestamp can hold
    instants = ", ".join(f"TRY(to_timestamp({name} / 1e9)) AS {name}{UTC_SUFFIX}" for name in ("t", "rx"))
    facts = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in key_values(table).items())
    register_lines(connection, "lines", lines)
    try:
        connection.execute(
            f"""COPY (SELECT *, {instants} FROM ({records}) ORDER BY {order})
                TO {literal(str(path))} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd,
                COMPRESSION_LEVEL {_ZSTD_LEVEL}, ROW_GROUP_SIZE {ROW_GROUP}, USE_TMP_FILE false,
                KV_METADATA {{{facts}}})"""
        )
    except duckdb.IOException as error:
        raise os_error(error, path) from error
    finally:
        connection.unregister("lines")
    return len(lines)


def os_error(error: duckdb.Error, path: Path) -> OSError:
    """Return the system's error behind one of DuckDB's, which carries only its text."""
    text = str(error).splitlines()[0]
    number = next((number for number in errno.errorcode if text.endswith(os.strerror(number))), errno.EIO)
    return OSError(number, os.strerror(number) if number != errno.EIO else text, str(path))
