"""DuckDB connections with bounded buffers that load no extension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import duckdb
import numpy as np

#: Upper bound of DuckDB's buffers while it parses, sorts and encodes one file.
_MEMORY: Final = "1GB"
#: DuckDB settings that prevent loading extensions and writing files of its own.
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


def register_lines(connection: duckdb.DuckDBPyConnection, name: str, lines: Sequence[str]) -> None:
    """Make lines of text a table of one column, `line`, without copying them."""
    column = np.empty(len(lines), dtype=object)
    column[:] = lines
    connection.register(name, {"line": column})
