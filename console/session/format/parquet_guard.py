"""Checks of Parquet files before anything is read of them: a session may have been sent.

Every reader loads the footer whole and believes it: a gigabyte of it, a hundred thousand columns, more rows than there
are bytes. No file of a compaction comes near to the limits here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from ..query.limits import bounded_memory
from .layout import SessionError, inside
from .manifest import ParquetPart
from .table_schema import literal
from .to_parquet import shared_cursor

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
_MEMORY: Final = "256MB"


def checked_paths(folder: Path, parts: Sequence[ParquetPart]) -> list[Path]:
    """Return the paths of files of a folder `parquet`, in their order.

    Raises SessionError for a file that compaction did not write; OSError.
    """
    paths = [inside(folder, part.path) for part in parts]
    for path in paths:
        _check_footer_size(path)
    for first in range(0, len(paths), _FILES_AT_ONCE):
        some = slice(first, first + _FILES_AT_ONCE)
        try:
            _check_footers(paths[some], parts[some])
        except (duckdb.Error, MemoryError):  # of several files it does not say which one
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
    """Raises SessionError for one with too many columns or rows, or other rows than compaction noted; duckdb.Error."""
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
    with bounded_memory():
        found = {row[0]: row[1:] for row in shared_cursor(_MEMORY).execute(query).fetchall()}
    for path, part in zip(paths, parts, strict=True):
        rows, columns, total, least, depth = found[str(path)]
        if columns > MAX_COLUMNS:
            raise _damaged(path, f"it has {columns} columns")
        if depth >= MAX_DEPTH:
            raise _damaged(path, f"its columns are nested {depth + 1} deep")
        if least < 0 or not part.rows == rows == total <= MAX_ROWS:
            raise _damaged(path, f"it claims {rows} rows in place of {part.rows}")


def _damaged(path: Path, what: str) -> SessionError:
    return SessionError(f"{path}: its Parquet is damaged: {what}: not written by compaction")
