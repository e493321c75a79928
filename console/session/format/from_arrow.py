"""Records out of Parquet again, in the order of arrival: for sessions whose segments somebody removed after compaction.

A row holds all of a record (`columns`), so what comes back is what was recorded; only that order is by `rx` and number,
where segments have it as it was. Files of a table follow each other in time and are sorted within by what they are
about: they are read one after the other, some time of each at once, so that memory holds a part of one file a table.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import inspect as types

from ...core.bus import Published
from ...records import KINDS, decode, encode
from ..query.limits import bounded_memory
from ..query.table_names import TABLES, UNKNOWN
from .manifest import Part
from .parquet_guard import looked_at
from .reader import Choice
from .to_arrow import schema_of

#: Rows that become records at once.
_ROWS: Final = 1024
#: Rows that are decoded at once, and rows that are sorted at once: a file is read once for each so many.
_BATCH_ROWS: Final = 16_384
_WINDOW_ROWS: Final = 25_000

#: What reading a broken file raises; where it unpacks to more than there may be, that there is no memory.
Broken: Final = (pa.ArrowException, MemoryError)

Take = Callable[[Any], Any]
Make = Callable[[pa.Table], Iterator[Published]]


def records(folder: Path, parts: Sequence[Part], choice: Choice) -> Iterator[Published]:
    """The chosen records of these files of a folder `parquet`.

    Raises OSError, SessionError for a file that no compaction wrote, one of `Broken` for one that is damaged.
    """
    tables: dict[str, list[Path]] = {}
    for part in parts:
        if choice.kinds is None or part.table in choice.kinds or part.table == UNKNOWN:
            tables.setdefault(part.table, []).append(looked_at(folder, part))
    streams = [_table(table, files, choice) for table, files in sorted(tables.items())]
    for record in heapq.merge(*streams, key=_arrival):
        if choice.takes(record):
            yield record


def span(folder: Path, parts: Sequence[Part]) -> tuple[int, int] | None:
    """When the earliest and the latest record in these files arrived; None where there is none. Raises OSError."""
    spans = [found for part in parts if (found := _span(looked_at(folder, part))) is not None]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _arrival(record: Published) -> tuple[int, str, int]:
    return record.rx, record.agent, record.seq


def _table(table: str, files: Sequence[Path], choice: Choice) -> Iterator[Published]:
    """The records of one table by arrival; files whose times overlap are sorted together."""
    spans = sorted((*found, path) for path in files if (found := _span(path)) is not None)
    group: list[Path] = []
    until = 0
    for first, last, path in spans:
        if choice.to_rx is not None and first >= choice.to_rx:
            break
        if choice.from_rx is not None and last < choice.from_rx:
            continue
        if group and first > until:
            yield from _group(table, group, choice)
            group = []
        group.append(path)
        until = max(until, last)
    if group:
        yield from _group(table, group, choice)


@cache
def _span(path: Path) -> tuple[int, int] | None:
    """From when to when the rows of a file arrived, by the rows.

    The file says it of its columns, too. But to be asked for that ends pyarrow's whole process, by an exception of C++
    that nothing catches (26.0: RowGroupMetaData.column), where a file that was sent says there what does not fit.
    """
    spans = [pc.min_max(rx).as_py() for rx in _arrivals(path) if len(rx)]
    if not spans:
        return None
    if any(one["min"] is None for one in spans):
        raise pa.ArrowInvalid("it does not say when its rows arrived")
    return min(one["min"] for one in spans), max(one["max"] for one in spans)


def _arrivals(path: Path) -> Iterator[pa.Array]:
    """When the rows of a file arrived, as they stand in it."""
    file = pq.ParquetFile(path)
    if [field.type for field in file.schema_arrow if field.name == "rx"] != [pa.int64()]:
        raise pa.ArrowInvalid("it has no column rx")
    return (batch.column(0) for batch in file.iter_batches(columns=["rx"], use_threads=False))


def _group(table: str, files: Sequence[Path], choice: Choice) -> Iterator[Published]:
    if table not in TABLES:
        raise pa.ArrowInvalid(f"{table[:80]} is no kind of record that this version knows")
    make = _unknown if table == UNKNOWN else _maker(table)
    for path in files:
        _check_columns(table, pq.read_schema(path))
    for begin, end in _windows(files):
        with bounded_memory():
            rows = pa.concat_tables([_read(path, begin, end) for path in files], promote_options="default")
            keys = [("rx", "ascending"), ("agent", "ascending"), ("seq", "ascending")]
            order = pc.sort_indices(rows, sort_keys=keys)
        pa.default_memory_pool().release_unused()  # it would keep what decoding took
        for at in range(0, len(order), _ROWS):
            yield from _told(make, rows.take(order.slice(at, _ROWS)))


def _check_columns(table: str, found: pa.Schema) -> None:
    """Raises ArrowInvalid where a column is of another type than that of the records that it is of."""
    known = schema_of(table)
    for name in ("rx", "agent", "seq"):
        if found.names.count(name) != 1:
            raise pa.ArrowInvalid(f"it has no column {name}")
    for field in found:
        if field.name in known.names and field.type != known.field(field.name).type:
            raise pa.ArrowInvalid(f"the column {field.name} is of type {field.type}"[:200])


def _told(make: Make, rows: pa.Table) -> Iterator[Published]:
    try:
        yield from make(rows)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise pa.ArrowInvalid(f"a row is no record: {error}") from error


def _windows(files: Sequence[Path]) -> Iterator[tuple[int, int | None]]:
    """Spans of arrival, one after the other, none with many more rows than fit into memory: from, up to but without.

    The last has no end: a record may have arrived at the last instant that there is.
    """
    arrivals = [rx for path in files for rx in _arrivals(path)]
    rx = np.sort(pa.chunked_array(arrivals, pa.int64()).to_numpy())
    yield from pairwise((*np.unique(rx[::_WINDOW_ROWS]).tolist(), None) if len(rx) else ())


def _read(path: Path, begin: int, end: int | None) -> pa.Table:
    """The rows of a file that arrived within that span, as they stand."""
    file = pq.ParquetFile(path)
    parts = []
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        rx = batch.column("rx")
        # a mask: filtering by an expression would load Acero, 90 MB
        within = pc.greater_equal(rx, begin)
        parts.append(batch.filter(within if end is None else pc.and_(within, pc.less(rx, end))))
    return pa.Table.from_batches(parts, file.schema_arrow)


# -- rows as records ---------------------------------------------------------------------------------------------------


def _unknown(rows: pa.Table) -> Iterator[Published]:
    return (decode((raw or "").encode()) for raw in rows.column("raw").to_pylist())


@cache
def _maker(kind: str) -> Callable[[pa.Table], Iterator[Published]]:
    """Makes records of one kind; a column that an older file lacks is what the struct has in its place."""
    struct = KINDS[kind]
    told = types.type_info(struct)
    assert isinstance(told, types.StructType)
    known = {field.encode_name: (field.name, _take(field.type)) for field in told.fields}

    def make(rows: pa.Table) -> Iterator[Published]:
        names, columns = [], []
        for name in rows.schema.names:
            if name in known:
                field, take = known[name]
                values = rows.column(name).to_pylist(maps_as_pydicts="strict")
                names.append(field)
                columns.append(values if take is None else [None if value is None else take(value) for value in values])
        for row in zip(*columns, strict=True):
            # as strictly typed as what comes in a line: the columns are, but not which of them may be null
            yield decode(encode(struct(**dict(zip(names, row, strict=True)))))

    return make


def _take(told: types.Type) -> Take | None:
    """Turns a value of a column into that of a field; None where it is the same."""
    if isinstance(told, types.UnionType):
        inner = [each for each in told.types if not isinstance(each, types.NoneType)]
        return _take(inner[0]) if len(inner) == 1 else msgspec.json.decode  # of several types: it is there as JSON
    match told:
        case types.VarTupleType() | types.ListType():
            each = _take(told.item_type)
            return tuple if each is None else _tuples(each)
        case types.TupleType():
            each = _take(told.item_types[0])
            return tuple if each is None else _tuples(each)
        case types.DictType():
            item = _take(told.value_type)
            return None if item is None else _dicts(item)
        case types.StructType():
            return _structs(told)
    return None


def _tuples(each: Take) -> Take:
    return lambda values: tuple(None if value is None else each(value) for value in values)


def _dicts(each: Take) -> Take:
    return lambda values: {key: None if value is None else each(value) for key, value in values.items()}


def _structs(told: types.StructType) -> Take:
    takes = [(field.name, field.encode_name, _take(field.type)) for field in told.fields]

    def make(value: dict[str, Any]) -> Any:
        facts = {
            name: value[encoded] if take is None or value[encoded] is None else take(value[encoded])
            for name, encoded, take in takes if encoded in value
        }  # fmt: skip
        return told.cls(**facts)

    return make
