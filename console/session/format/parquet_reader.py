"""Records from the Parquet of compaction, in order of arrival, after checks that the files are what compaction wrote.

A row holds a complete record (`table_schema`). The order is by `rx`, agent and seq, where segments keep the order of
writing. The files of a table follow each other in time and are sorted by entity within: they are read one after the
other in windows of time, so that memory holds a part of one file per table.

A session may come from an untrusted source, and every reader loads a Parquet footer completely and trusts it: its size,
columns, nesting and rows are limited here, far above what compaction writes.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb

from ...core.bus import Published
from ...records import BadRecord, decode
from .duckdb_connection import connect, shared_cursor
from .layout import SessionError, digest_of, inside
from .manifest import ParquetPart
from .reader import RecordFilter
from .table_schema import TABLES, columns_of, formatted_lines, literal, quoted

#: Rows decoded at once.
_ROWS: Final = 1024
#: Rows sorted at once; a file is read once per window.
_WINDOW_ROWS: Final = 25_000
#: Memory of DuckDB; a window of regular records takes a fifth of it.
_MEMORY: Final = "512MB"

#: Raised for a damaged file; MemoryError if it decompresses to more than is allowed.
ParquetErrors: Final = (duckdb.Error, MemoryError)


def records(folder: Path, parts: Sequence[ParquetPart], choice: RecordFilter) -> Iterator[Published]:
    """Yield the selected records of these files of a folder `parquet`.

    Raises OSError, SessionError for a file that compaction did not write, one of `ParquetErrors` for a damaged one.
    """
    wanted = [part for part in parts if choice.kinds is None or part.table in (*choice.kinds, TABLES[-1])]
    tables: dict[str, list[Path]] = {}
    for part, path in zip(wanted, checked_paths(folder, wanted), strict=True):
        tables.setdefault(part.table, []).append(path)
    if not tables:
        return
    with connect(_MEMORY, threads=1) as connection:  # a damaged file can invalidate a database for all its readers
        streams = [_table(connection, table, files, choice) for table, files in sorted(tables.items())]
        for record in heapq.merge(*streams, key=_arrival):
            if choice.matches(record):
                yield record


def span(folder: Path, parts: Sequence[ParquetPart]) -> tuple[int, int] | None:
    """Return the arrival of the earliest and latest record in these files; None without records. Raises OSError."""
    spans = [span for path in checked_paths(folder, parts) if (span := _span(path)) is not None]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _arrival(record: Published) -> tuple[int, str, int]:
    return record.rx, record.agent, record.seq


def _table(
    connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], choice: RecordFilter
) -> Iterator[Published]:
    """Yield the records of one table by arrival; files whose times overlap are sorted together."""
    spans = sorted((*span, path) for path in files if (span := _span(path)) is not None)
    group: list[Path] = []
    until = 0
    for first, last, path in spans:
        if choice.to_rx is not None and first >= choice.to_rx:
            break
        if choice.from_rx is not None and last < choice.from_rx:
            continue
        if group and first > until:
            yield from _group(connection, table, group)
            group = []
        group.append(path)
        until = max(until, last)
    if group:
        yield from _group(connection, table, group)


@cache
def _span(path: Path) -> tuple[int, int] | None:
    """Return the first and last arrival in a file, from its rows: its statistics are not trusted."""
    _types_in([path])
    query = f"SELECT min(rx), max(rx), count(*), count(rx) FROM (SELECT rx + 0 AS rx FROM {_read([path])})"
    first, last, rows, stamped = shared_cursor(_MEMORY).execute(query).fetchall()[0]
    if rows != stamped:
        raise duckdb.InvalidInputException("rows without rx")
    return (first, last) if rows else None


def _read(files: Sequence[Path]) -> str:
    listed = ", ".join(literal(str(path)) for path in files)
    return f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"


def _types_in(files: Sequence[Path]) -> dict[str, str]:
    """Return the columns of these files with their types. Raises duckdb.Error without an integer `rx`."""
    rows = shared_cursor(_MEMORY).execute(f"DESCRIBE SELECT * FROM {_read(files)}").fetchall()
    types = {str(row[0]): str(row[1]) for row in rows}
    if types.get("rx") != "BIGINT":
        raise duckdb.InvalidInputException("it has no column rx of type BIGINT")
    return types


def _group(connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path]) -> Iterator[Published]:
    if table not in TABLES:
        raise duckdb.InvalidInputException(f"{table[:80]} unknown record kind")
    types: dict[str, str] = {}
    for path in files:
        types |= _checked_types(table, path)
    for begin, end in _windows(files):
        within = f"rx >= {begin}" + ("" if end is None else f" AND rx < {end}")
        rows = f"(SELECT * FROM {_read(files)} WHERE {within} ORDER BY rx, agent, seq)"
        yield from _decoded(connection, formatted_lines(table, types, rows))


def _checked_types(table: str, path: Path) -> dict[str, str]:
    """Return a file's columns. Raises duckdb.Error if a type differs from that of its records."""
    types, expected = _types_in([path]), _expected_types(table)
    for name in ("rx", "agent", "seq"):
        if name not in types:
            raise duckdb.InvalidInputException(f"it has no column {name}")
    for name, kind in types.items():
        wanted = expected.get(name, kind)
        if kind != wanted and not _is_earlier(duckdb.type(kind), duckdb.type(wanted)):
            raise duckdb.InvalidInputException(f"the column {name} is of type {kind}"[:200])
    return types


def _is_earlier(kind: Any, expected: Any) -> bool:
    """Whether a type is that of an earlier version: structs without the fields that were added since."""
    if kind.id != expected.id or kind.id not in ("list", "struct"):
        return bool(kind == expected)
    fields = dict(expected.children)
    return all(name in fields and _is_earlier(child, fields[name]) for name, child in kind.children)


@cache
def _expected_types(table: str) -> dict[str, str]:
    """Return the types of a table's columns as DuckDB writes them."""
    columns = ", ".join(f"NULL::{column.type} AS {quoted(column.name)}" for column in columns_of(table))
    return {str(row[0]): str(row[1]) for row in shared_cursor(_MEMORY).execute(f"DESCRIBE SELECT {columns}").fetchall()}


def _windows(files: Sequence[Path]) -> Iterator[tuple[int, int | None]]:
    """Yield consecutive spans of arrival of about `_WINDOW_ROWS` rows each: begin, end (excluded).

    The last span has no end: 64 bits may not hold the instant after the last arrival.
    """
    query = f"""SELECT DISTINCT rx FROM (SELECT rx, row_number() OVER (ORDER BY rx) AS place FROM {_read(files)})
                WHERE place % {_WINDOW_ROWS} = 1 ORDER BY rx"""
    begins = [row[0] for row in shared_cursor(_MEMORY).execute(query).fetchall()]
    yield from zip(begins, [*begins[1:], None], strict=True)


def _decoded(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[Published]:
    rows = connection.cursor().execute(query)
    while True:
        lines = rows.fetchmany(_ROWS)
        if not lines:
            return
        for (line,) in lines:
            try:  # as strict as for records from nodes: types are checked, but any value may be null
                yield decode((line or "").encode())
            except BadRecord as error:
                raise duckdb.InvalidInputException(f"a row is not a record: {error}") from error


#: Bytes. A file of 60 columns has a footer of 20,000.
MAX_FOOTER_BYTES: Final = 4 << 20
#: Leaf columns, nested ones included.
MAX_COLUMNS: Final = 2_048
#: Levels of nesting; records have at most seven (`bins, list, element, best, list, element, t1`).
MAX_DEPTH: Final = 32
#: Rows of a file: compaction closes one at some 50,000.
MAX_ROWS: Final = 1 << 22
_TAIL_BYTES: Final = 8  # length of the footer, PAR1
#: Files whose footers are read by one query.
_FILES_AT_ONCE: Final = 64
#: DuckDB's buffers while it reads footers.
_FOOTER_MEMORY: Final = "256MB"


def checked_paths(folder: Path, parts: Sequence[ParquetPart]) -> list[Path]:
    """Return the paths of files of a folder `parquet`, in their order.

    Raises SessionError for a file that compaction did not write, OSError.
    """
    paths = [inside(folder, part.path) for part in parts]
    for path, part in zip(paths, parts, strict=True):
        if part.digest and digest_of(path) != part.digest:
            raise _damaged(path, "its checksum differs from that in compacted.json")
        _check_footer_size(path)
    for first in range(0, len(paths), _FILES_AT_ONCE):
        some = slice(first, first + _FILES_AT_ONCE)
        try:
            _check_footers(paths[some], parts[some])
        except (duckdb.Error, MemoryError):  # the error does not name the file
            for path, part in zip(paths[some], parts[some], strict=True):
                try:
                    _check_footers([path], [part])
                except (duckdb.Error, MemoryError) as error:
                    raise _damaged(path, str(error).partition("\n")[0] or "its footer needs too much memory") from error
    return paths


def _check_footer_size(path: Path) -> None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        footer = int.from_bytes(file.read(4), "little")
    if footer > min(size, MAX_FOOTER_BYTES):
        raise _damaged(path, f"its footer claims {footer} bytes")


def _check_footers(paths: Sequence[Path], parts: Sequence[ParquetPart]) -> None:
    """Raises SessionError for too many columns or rows, or rows other than in the manifest; duckdb.Error."""
    listed = "[" + ", ".join(literal(str(path)) for path in paths) + "]"
    query = f"""
        SELECT file_name, num_rows, columns, coalesce(total, 0), coalesce(least, 0), coalesce(depth, 0)
        FROM (SELECT file_name, num_rows FROM parquet_file_metadata({listed}))
        JOIN (SELECT file_name, count(*) AS columns FROM parquet_schema({listed}) GROUP BY ALL) USING (file_name)
        LEFT JOIN (
            SELECT file_name, sum(rows) AS total, min(rows) AS least, max(depth) AS depth FROM (
                SELECT file_name, row_group_id, row_group_num_rows AS rows,
                       max(length(path_in_schema) - length(replace(path_in_schema, ',', ''))) AS depth
                FROM parquet_metadata({listed}) GROUP BY ALL
            ) GROUP BY ALL
        ) USING (file_name)
    """
    footers = {row[0]: row[1:] for row in shared_cursor(_FOOTER_MEMORY).execute(query).fetchall()}
    for path, part in zip(paths, parts, strict=True):
        rows, columns, total, least, depth = footers[str(path)]
        if columns > MAX_COLUMNS:
            raise _damaged(path, f"it has {columns} columns")
        if depth >= MAX_DEPTH:
            raise _damaged(path, f"its columns are nested {depth + 1} deep")
        if least < 0 or not part.rows == rows == total <= MAX_ROWS:
            raise _damaged(path, f"its footer reports {rows} rows, expected {part.rows}")


def _damaged(path: Path, what: str) -> SessionError:
    return SessionError(f"{path}: its Parquet is damaged: {what}: not written by compaction")
