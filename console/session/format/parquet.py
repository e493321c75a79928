"""One Parquet file of one kind: how its columns are encoded, and in which order its rows are.

Sorted by the thing they are about and then by time, figures differ little from row to row. A column with few distinct
values becomes a dictionary; else integers (instants, counters) become differences, and the bytes of floats are kept
apart by their place (byte stream split), so that zstd sees signs and exponents together. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: What records of a kind are about: those of these columns that it has, in this order; then time.
_ABOUT: Final = (
    "node", "uuid", "link", "device", "port", "capture", "job", "pid", "start_ticks", "agent", "mono", "seq",
)  # fmt: skip
#: A column with fewer distinct values than this share of its rows becomes a dictionary.
_FEW: Final = 0.25
#: Rows that are read, and skipped, as one.
ROW_GROUP: Final = 122_880
#: Beyond this a dictionary is given up for the rest of its column.
_DICTIONARY_BYTES: Final = 4 << 20
#: On `gpu` records 15 makes a file 6 % smaller and takes four times as long.
_ZSTD_LEVEL: Final = 9


def write_part(path: Path, batches: Sequence[pa.RecordBatch], *, quick: bool = False) -> int:
    """Write these rows, sorted; how many they were. Raises OSError; then a piece of the file may be there.

    `quick`: in no order and larger, for a file that is read once.
    """
    table = pa.Table.from_batches(batches)
    about = [name for name in _ABOUT if name in table.schema.names]
    table = table if quick else table.sort_by([(name, "ascending") for name in about])
    dictionaries, encodings = (True, None) if quick else _encodings(table)
    pq.write_table(
        table, path, compression="zstd", compression_level=1 if quick else _ZSTD_LEVEL, use_dictionary=dictionaries,
        column_encoding=encodings, dictionary_pagesize_limit=_DICTIONARY_BYTES, row_group_size=ROW_GROUP,
        write_statistics=True, store_schema=True,
    )  # fmt: skip
    return len(table)


def _encodings(table: pa.Table) -> tuple[list[str], dict[str, str]]:
    """Which leaf columns become dictionaries, and how the others are encoded."""
    dictionaries, encodings = [], {}
    for field in table.schema:
        if pa.types.is_nested(field.type):
            dictionaries += list(_leaves(field.name, field.type))
        elif pa.types.is_boolean(field.type):
            encodings[field.name] = "PLAIN"
        elif pa.types.is_string(field.type) or _is_few(table.column(field.name)):
            dictionaries.append(field.name)
        else:
            encodings[field.name] = "BYTE_STREAM_SPLIT" if pa.types.is_floating(field.type) else "DELTA_BINARY_PACKED"
    return dictionaries, encodings


def _is_few(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= _FEW * len(column))


def _leaves(path: str, arrow: pa.DataType) -> Iterator[str]:
    """The paths by which Parquet knows what is in a nested column."""
    if pa.types.is_map(arrow):
        yield f"{path}.key_value.key"
        yield from _leaves(f"{path}.key_value.value", arrow.item_type)
    elif pa.types.is_list(arrow):
        yield from _leaves(f"{path}.list.element", arrow.value_type)
    elif pa.types.is_struct(arrow):
        for field in arrow:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path
