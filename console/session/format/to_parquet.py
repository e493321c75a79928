"""Writing records into Parquet with DuckDB: one file of one table, sorted by entity and time so that it packs well."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

from .table_schema import columns_of, key_values, literal, parsed_lines, quoted

#: What records of a kind are about: those of these columns that it has, in this order; then time.
_ORDER: Final = (
    "node", "uuid", "link", "device", "port", "capture", "job", "pid", "start_ticks", "agent", "mono", "seq",
)  # fmt: skip
#: Rows. Unit of reading and skipping in a file.
ROW_GROUP: Final = 122_880
#: zstd level. On `gpu` records 15 makes a file 6 % smaller and takes four times as long.
_ZSTD_LEVEL: Final = 9
#: Upper bound of DuckDB's buffers while it parses, sorts and encodes one file.
_MEMORY: Final = "1GB"
#: DuckDB settings that keep it from loading extensions and from writing outside of what is asked of it.
CONFIG: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
    "allow_community_extensions": "false", "allow_persistent_secrets": "false", "python_enable_replacements": "false",
    "temp_directory": "",
}  # fmt: skip


def connect(memory: str = _MEMORY, **config: Any) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with bounded memory, which spills nothing to disk and loads no extension."""
    return duckdb.connect(":memory:", config={**CONFIG, "memory_limit": memory, **config})


def shared_cursor(memory: str) -> duckdb.DuckDBPyConnection:
    """Return a cursor on this process's connection with that memory limit, for short queries of files.

    A damaged file can invalidate a whole database (duckdb.FatalException); then a new one takes its place.
    """
    try:
        cursor = _shared(memory).cursor()
        cursor.execute("SELECT 1")
    except duckdb.Error:
        _shared.cache_clear()
        cursor = _shared(memory).cursor()
    return cursor


@cache
def _shared(memory: str) -> duckdb.DuckDBPyConnection:
    return connect(memory, threads=1)


def write_file(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, lines: Sequence[str], *, is_temporary: bool = False
) -> int:
    """Write records, as `table_schema.line_of` formats them, into one Parquet file; return the number of rows.

    `is_temporary`: unsorted and larger, for a file that is read once. Raises OSError; then a partial file may exist.
    """
    names = {column.name for column in columns_of(table)}
    order = ", ".join(quoted(name) for name in _ORDER if name in names)
    level = 1 if is_temporary else _ZSTD_LEVEL
    facts = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in key_values(table).items())
    register_lines(connection, "lines", lines)
    try:
        connection.execute(
            f"""COPY ({parsed_lines(table, "lines")}{"" if is_temporary else f" ORDER BY {order}"})
                TO {literal(str(path))} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd,
                COMPRESSION_LEVEL {level}, ROW_GROUP_SIZE {ROW_GROUP}, USE_TMP_FILE false,
                KV_METADATA {{{facts}}})"""
        )
    except duckdb.IOException as error:
        raise _os_error(error, path) from error
    finally:
        connection.unregister("lines")
    return len(lines)


def register_lines(connection: duckdb.DuckDBPyConnection, name: str, lines: Sequence[str]) -> None:
    """Make lines of text a table of one column, `line`, without copying them."""
    column = np.empty(len(lines), dtype=object)
    column[:] = lines
    connection.register(name, {"line": column})


def _os_error(error: duckdb.Error, path: Path) -> OSError:
    """Return the system's error behind one of DuckDB's, which carries only its text."""
    text = str(error).splitlines()[0]
    number = next((number for number in errno.errorcode if text.endswith(os.strerror(number))), errno.EIO)
    return OSError(number, os.strerror(number) if number != errno.EIO else text, str(path))
