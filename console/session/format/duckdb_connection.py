"""DuckDB connections with bounded memory that load no extension."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
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


# -- memory limit of the process ---------------------------------------------------------------------------------------

#: Bytes. DuckDB limits its own buffers, but not what one call allocates at once (`repeat('x', 4e9)`); that fails at
#: this limit, and DuckDB reports the error. Its threads, one per CPU, have stacks and pools beside that.
LIMIT_BYTES: Final = (4 << 30) + (os.cpu_count() or 1) * (16 << 20)


_lock: Final = threading.Lock()
_before: list[tuple[int, int]] = []  # the outer limit, once for every block that is open, in any thread


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit what this process allocates meanwhile to `LIMIT_BYTES` beyond what it has now, where supported."""
    with _lock:
        before = _before[0] if _before else resource.getrlimit(resource.RLIMIT_DATA)
        if not _before:
            limits = [limit for limit in (*before, _data_bytes() + LIMIT_BYTES) if limit != resource.RLIM_INFINITY]
            _set((min(limits), before[1]))
        _before.append(before)
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                _set(before)


def _set(limits: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def _data_bytes() -> int:
    """Data segment of this process in bytes, which RLIMIT_DATA counts; 0 where /proc is not mounted."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
