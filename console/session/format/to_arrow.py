"""Records as columns: every kind of record has one Arrow schema, made from its struct; nothing is lost on the way.

A struct within a record is a struct column, a tuple a list, a dict a map; words of a closed list are strings; what may
be a number or a text is its JSON. A field's metadata say its unit and its meaning. Records of kinds this version does
not know are the table `unknown`: their head, and the record as it came, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import inspect as types

from ...records import KINDS, AnyRecord, RawRecord, encode
from ...records.kinds import kind_of
from ..query.dictionary import meaning_of, words_of
from ..query.table_names import TABLES, UNKNOWN

Make = Callable[[Sequence[Any]], pa.Array]


@dataclass(frozen=True)
class _Layout:
    """How records of one kind become columns."""

    schema: pa.Schema
    makes: tuple[Make, ...]  # one a field, in the order of the struct


def table_of(record: AnyRecord | RawRecord) -> str:
    """The table a record belongs to."""
    if isinstance(record, RawRecord):
        return UNKNOWN
    return kind_of(record)


def schema_of(table: str) -> pa.Schema:
    """The columns of a table. Raises KeyError for one that is none."""
    return _UNKNOWN_SCHEMA if table == UNKNOWN else _layout(table).schema


def to_batch(table: str, records: Sequence[AnyRecord | RawRecord]) -> pa.RecordBatch:
    """These records, all of that table, as columns."""
    if table == UNKNOWN:
        return _unknown_batch(records)
    layout = _layout(table)
    rows = list(map(msgspec.structs.astuple, records))
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(layout.makes)
    arrays = [make(column) for make, column in zip(layout.makes, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


# -- schemas -----------------------------------------------------------------------------------------------------------


@cache
def _layout(kind: str) -> _Layout:
    struct = KINDS[kind]
    words = {word.field: word for word in words_of(kind)}
    fields, makes = [], []
    told = types.type_info(struct)
    assert isinstance(told, types.StructType)
    for field in told.fields:
        arrow = _arrow_type(field.type)
        word = words[field.encode_name]
        facts = {name: text for name, text in (("unit", word.unit), ("description", word.meaning)) if text}
        fields.append(pa.field(field.encode_name, arrow, metadata=facts or None))
        makes.append(_make(arrow, field.type))
    facts = {"gconsole.kind": kind, "gconsole.schema": SCHEMA, "description": meaning_of(kind)}
    return _Layout(pa.schema(fields, metadata=facts), tuple(makes))


#: The version of the form in which sessions are kept and exported.
SCHEMA: Final = "gconsole.session/1"

_UNKNOWN_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()), pa.field("node", pa.string()), pa.field("agent", pa.string()),
        pa.field("seq", pa.int64()), pa.field("t", pa.int64(), metadata={"unit": "ns"}),
        pa.field("mono", pa.int64(), metadata={"unit": "ns"}), pa.field("rx", pa.int64(), metadata={"unit": "ns"}),
        pa.field("raw", pa.string(), metadata={"description": "the record as it came, JSON"}),
    ],
    metadata={"gconsole.kind": UNKNOWN, "gconsole.schema": SCHEMA},
)  # fmt: skip


def _arrow_type(told: types.Type) -> pa.DataType:
    match told:
        case types.UnionType():
            inner = _known(told)
            return _arrow_type(inner[0]) if len(inner) == 1 else pa.string()  # of several types: the value as JSON
        case types.IntType():
            return pa.int64()
        case types.FloatType():
            return pa.float64()
        case types.BoolType():
            return pa.bool_()
        case types.StrType() | types.LiteralType():
            return pa.string()
        case types.VarTupleType() | types.ListType():
            return pa.list_(_arrow_type(told.item_type))
        case types.TupleType():
            return pa.list_(_arrow_type(told.item_types[0]))
        case types.DictType():
            return pa.map_(pa.string(), _arrow_type(told.value_type))
        case types.StructType():
            return pa.struct([pa.field(field.encode_name, _arrow_type(field.type)) for field in told.fields])
    raise TypeError(f"records have no column for {told}")


def _known(told: types.Type) -> list[types.Type]:
    """The types that a field may have beside null."""
    every = told.types if isinstance(told, types.UnionType) else (told,)
    return [each for each in every if not isinstance(each, types.NoneType)]


# -- columns -----------------------------------------------------------------------------------------------------------


def _make(arrow: pa.DataType, told: types.Type) -> Make:
    """Turns one field's values into a column."""
    if pa.types.is_map(arrow):
        (mapping,) = _known(told)
        assert isinstance(mapping, types.DictType)
        is_json = len(_known(mapping.value_type)) > 1
        return lambda values: _maps(arrow, values, is_json)
    if _has_struct(arrow):
        return lambda values: pa.array([_plain(value) for value in values], type=arrow)
    return lambda values: pa.array(values, type=arrow)


def _maps(arrow: pa.DataType, values: Sequence[dict[str, Any] | None], is_json: bool) -> pa.Array:
    """Maps; most are empty, or all are null. `is_json`: their values, of whatever type, as JSON."""
    if is_json:
        values = [None if value is None else {key: _json(item) for key, item in value.items()} for value in values]
    if None in values:
        return pa.array([None if value is None else list(value.items()) for value in values], type=arrow)
    return _full_maps(arrow, values)  # type: ignore[arg-type]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _full_maps(arrow: pa.DataType, values: Sequence[dict[str, Any]]) -> pa.Array:
    offsets = list(accumulate(map(len, values), initial=0))
    keys = pa.array(list(chain.from_iterable(values)), pa.string())
    items = pa.array([item for value in values for item in value.values()], arrow.item_type)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)


def _has_struct(arrow: pa.DataType) -> bool:
    return pa.types.is_struct(arrow) or (pa.types.is_list(arrow) and _has_struct(arrow.value_type))


def _plain(value: Any) -> Any:
    """Structs as dicts with all their fields, whatever form they have in JSON, where defaults may be left out."""
    if isinstance(value, msgspec.Struct):
        return {encoded: _plain(getattr(value, name)) for name, encoded in _names(type(value))}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


@cache
def _names(struct: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(struct)]


class _Times(msgspec.Struct):
    t: int = 0
    mono: int = 0


_times = msgspec.json.Decoder(_Times)


def _unknown_batch(records: Sequence[Any]) -> pa.RecordBatch:
    lines = [encode(record) for record in records]
    times = [_read_times(line) for line in lines]
    return pa.RecordBatch.from_pydict(
        {
            "kind": [record.kind for record in records], "node": [record.node for record in records],
            "agent": [record.agent for record in records], "seq": [record.seq for record in records],
            "t": [time.t for time in times], "mono": [time.mono for time in times],
            "rx": [record.rx for record in records],
            "raw": [line.decode(errors="replace") for line in lines],
        },
        schema=_UNKNOWN_SCHEMA,
    )  # fmt: skip


def _read_times(line: bytes) -> _Times:
    """The instants of a record of any kind; zero where it has them in some other form."""
    try:
        return _times.decode(line)
    except msgspec.ValidationError:
        return _Times()


__all__ = ["SCHEMA", "TABLES", "UNKNOWN", "schema_of", "table_of", "to_batch"]
