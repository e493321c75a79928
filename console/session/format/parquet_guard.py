"""A file that compaction wrote, looked at before anything is read of it: a session may have been sent.

What stands at the end of a Parquet file is read whole, and believed, by every reader: a gigabyte of it, a hundred
thousand columns, more rows than there are bytes. No file of a compaction comes near to the limits here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from .layout import SessionError, inside
from .manifest import Part

#: Bytes of what stands at the end of a file: a file of 60 columns has 20,000.
MOST_FOOTER: Final = 4 << 20
#: Columns that hold values, also within others.
MOST_COLUMNS: Final = 2_048
#: Rows of a file: compaction writes one when 24 MiB are together.
MOST_ROWS: Final = 1 << 22
_END: Final = 8  # bytes: the length of the footer, PAR1


def looked_at(folder: Path, part: Part) -> Path:
    """The path of a file of a folder `parquet`. Raises SessionError if compaction did not write it; OSError."""
    path = inside(folder, part.path)
    wrong = _wrong_with(path, part)
    if wrong is not None:
        raise SessionError(f"{path}: its Parquet is damaged: {wrong}: no compaction wrote this")
    return path


def _wrong_with(path: Path, part: Part) -> str | None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END))
        footer = int.from_bytes(file.read(4), "little")
    if footer > min(size, MOST_FOOTER):
        return f"its footer says that it has {footer} bytes"
    try:
        meta = pq.read_metadata(path)
        if meta.num_columns > MOST_COLUMNS:
            return f"it has {meta.num_columns} columns"
        rows = [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
        str(meta.schema.to_arrow_schema())  # names that are no text
    except (pa.ArrowException, OSError, ValueError) as error:  # of too deep a schema, that the file cannot be opened
        return str(error)
    if not min(rows, default=0) >= 0 or not part.rows == meta.num_rows == sum(rows) <= MOST_ROWS:
        return f"it says that it has {meta.num_rows} rows, of {part.rows}"
    return None
