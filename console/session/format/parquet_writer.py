"""Parquet files of records: one file per table and hour of arrival, sorted by entity and time."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import duckdb

from ...core.bus import Published
from .duckdb_connection import connect, register_lines
from .layout import digest_of, inside, sync_file, sync_folder
from .manifest import ParquetPart
from .table_schema import TABLES, columns_of, key_values, line_of, literal, parsed_lines, quoted, table_of

#: Sort order: those of these columns that a table has; entity first, then time.
_ORDER: Final = (
    "node", "uuid", "link", "device", "port", "capture", "job", "pid", "start_ticks", "agent", "mono", "seq",
)  # fmt: skip
#: Rows. Unit of reading and skipping in a file.
ROW_GROUP: Final = 122_880
#: zstd level. On `gpu` records 15 makes a file 6 % smaller and takes four times as long.
_ZSTD_LEVEL: Final = 9
#: Suffix of the columns with `t` and `rx` as timestamps in UTC, µs: for other programs. Our readers take the integers.
UTC_SUFFIX: Final = "_utc"
#: Suffix of a file that is not complete: it must not match `*.parquet`, which other programs read.
DRAFT_SUFFIX: Final = ".draft"
#: Characters of JSON held in memory before a file is written of the largest table: some 60,000 records of GPUs.
BUFFER_CHARS: Final = 72 << 20


class PartWriter:
    """Writes records into the tables of a folder, a file whenever the buffer is full; memory stays bounded.

    When `finish` returns, all files are synced to disk and have their names, which drafts until then; `is_temporary`:
    unsorted scratch files, written quickly.
    """

    def __init__(self, folder: Path, prefix: str, *, is_temporary: bool = False) -> None:
        self._folder, self._prefix, self._is_temporary = folder, prefix, is_temporary
        self._lines: dict[tuple[str, str], list[str]] = {}
        self._sizes: Counter[tuple[str, str]] = Counter()
        self._size = 0
        self._written: Counter[tuple[str, str]] = Counter()
        self._parts: list[ParquetPart] = []

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
        if not self._is_temporary:
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
        path, digest = inside(self._folder, name), ""
        if self._is_temporary:
            rows = write_file(self._connection, path, table, lines, is_temporary=True)
        else:
            draft = _draft_of(path)
            draft.unlink(missing_ok=True)  # a link must not be followed
            rows = write_file(self._connection, draft, table, lines)
            sync_file(draft)
            digest = digest_of(draft)
        self._parts.append(ParquetPart(name, table, hour, rows, digest))

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return connect()


def _draft_of(path: Path) -> Path:
    return path.with_name(path.name + DRAFT_SUFFIX)


def hour_of(rx: int) -> str:
    """Return the hour of the console's clock, UTC, by which tables are partitioned."""
    return _hour(rx // 3_600_000_000_000)


@lru_cache(maxsize=64)
def _hour(hours: int) -> str:
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H")


def write_file(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, lines: Sequence[str], *, is_temporary: bool = False
) -> int:
    """Write records, as `table_schema.line_of` formats them, into one Parquet file; return the number of rows.

    `is_temporary`: unsorted and larger, for a file that is read once. Raises OSError; then a partial file may exist.
    """
    names = {column.name for column in columns_of(table)}
    order = ", ".join(quoted(name) for name in _ORDER if name in names)
    records = parsed_lines(table, "lines")
    # TRY: nodes may send instants that no timestamp can hold
    instants = ", ".join(f"TRY(to_timestamp({name} / 1e9)) AS {name}{UTC_SUFFIX}" for name in ("t", "rx"))
    level = 1 if is_temporary else _ZSTD_LEVEL
    facts = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in key_values(table).items())
    register_lines(connection, "lines", lines)
    try:
        connection.execute(
            f"""COPY ({records if is_temporary else f"SELECT *, {instants} FROM ({records}) ORDER BY {order}"})
                TO {literal(str(path))} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd,
                COMPRESSION_LEVEL {level}, ROW_GROUP_SIZE {ROW_GROUP}, USE_TMP_FILE false,
                KV_METADATA {{{facts}}})"""
        )
    except duckdb.IOException as error:
        raise _os_error(error, path) from error
    finally:
        connection.unregister("lines")
    return len(lines)


def _os_error(error: duckdb.Error, path: Path) -> OSError:
    """Return the system's error behind one of DuckDB's, which carries only its text."""
    text = str(error).splitlines()[0]
    number = next((number for number in errno.errorcode if text.endswith(os.strerror(number))), errno.EIO)
    return OSError(number, os.strerror(number) if number != errno.EIO else text, str(path))
