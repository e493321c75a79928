"""SQL columns of every record kind: one table per kind, one column per field, lossless in both directions.

A struct within a record is a STRUCT, a tuple a LIST, a dict a MAP, an enumeration VARCHAR; a value of several types is
kept as its JSON text. Records of newer kinds share the table `unknown`: head and JSON text.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from ...records import KINDS, AnyRecord, RawRecord, Record, encode
from ...records.kinds import kind_of
from .layout import SCHEMA

#: Table of records whose kind is unknown to this version.
UNKNOWN: Final = "unknown"
#: All tables.
TABLES: Final = (*KINDS, UNKNOWN)
#: Bytes. DuckDB's buffers are twice as large.
_LEAST_LINE_BYTES: Final = 2 << 20

_UNKNOWN_TYPES: Final = {
    "kind": "VARCHAR", "node": "VARCHAR", "agent": "VARCHAR", "seq": "BIGINT", "t": "BIGINT", "mono": "BIGINT",
    "rx": "BIGINT", "raw": "VARCHAR",
}  # fmt: skip


class TableColumn(msgspec.Struct, frozen=True):
    """One column: its SQL type, the type `from_json` parses it as, and an SQL expression of its JSON value."""

    name: str
    type: str
    json_type: str  # JSON in place of VARCHAR where a value may be of several types
    json_value: str


class LineFile(msgspec.Struct, frozen=True):
    """A file of records of one table, as `line_of` formats them."""

    path: Path
    longest: int  # bytes of its longest line, at least


def table_of(record: AnyRecord | RawRecord) -> str:
    """Return the table a record belongs to."""
    return UNKNOWN if isinstance(record, RawRecord) else kind_of(record)


@cache
def columns_of(table: str) -> tuple[TableColumn, ...]:
    """Return the columns of a table in the order of its record. Raises KeyError for an unknown table."""
    if table == UNKNOWN:
        return tuple(TableColumn(name, kind, kind, quoted(name)) for name, kind in _UNKNOWN_TYPES.items())
    return tuple(
        TableColumn(
            field.encode_name, _sql_type(field.type, "VARCHAR"), _sql_type(field.type, "JSON"),
            _json_value(quoted(field.encode_name), field.type),
        )
        for field in _struct(KINDS[table]).fields
    )  # fmt: skip


def parsed_lines(table: str, source: str, *, is_complete: bool = True) -> str:
    """Return the SQL that parses the column `line` of `source`, as `line_of` formats it, into the table's columns.

    `is_complete`: it fails with InvalidInputException on a line without one of the fields; else that is null.
    """
    parse = "from_json_strict" if is_complete else "from_json"
    structure = msgspec.json.encode({column.name: column.json_type for column in columns_of(table)}).decode()
    return f"""SELECT {_cast(table, "parsed.")}
               FROM (SELECT {parse}(line, {literal(structure)}) AS parsed FROM {source})"""


def read_lines(table: str, file: LineFile) -> str:
    """Return the SQL that reads a file of lines; only the columns in use are parsed. A field not in a line is null."""
    types = ", ".join(f"{literal(column.name)}: {literal(column.json_type)}" for column in columns_of(table))
    return f"""SELECT {_cast(table)} FROM read_ndjson({literal(str(file.path))}, columns = {{{types}}},
               compression = 'none', maximum_object_size = {max(file.longest + 1, _LEAST_LINE_BYTES)})"""


def _cast(table: str, source: str = "") -> str:
    """The columns of a table from those of the types in JSON."""
    return ", ".join(
        f"{source}{quoted(column.name)}::{column.type} AS {quoted(column.name)}" for column in columns_of(table)
    )


def formatted_lines(table: str, present: Collection[str], source: str) -> str:
    """Return the SQL that formats rows of `source`, which has the columns `present`, as JSON lines for `decode`."""
    if table == UNKNOWN:
        return f"SELECT raw FROM {source}"
    fields = [f"'kind': {literal(table)}"]
    fields += [f"{literal(item.name)}: {item.json_value}" for item in columns_of(table) if item.name in present]
    return f"SELECT to_json({{{', '.join(fields)}}})::VARCHAR FROM {source}"


def key_values(table: str) -> dict[str, str]:
    """Return the key-value metadata of a table's Parquet files: kind, version, and unit and meaning of each column."""
    # reads sources

    facts = {"gconsole.kind": table, "gconsole.schema": SCHEMA}
    if table == UNKNOWN:
        return facts
    fields = {
        word.field: {name: text for name, text in (("unit", word.unit), ("description", word.meaning)) if text}
        for word in words_of(table)
    }
    return facts | {"description": meaning_of(table), "gconsole.fields": msgspec.json.encode(fields).decode()}


@cache
def line_of(table: str) -> Callable[[Any], bytes]:
    """Return the function that formats records of a table as JSON with every field present and all structs as objects.

    Fields that equal their default would be missing in JSON otherwise, and some structs would be arrays.
    """
    if table == UNKNOWN:
        return _unknown_line
    return _plain_line if _needs_plain(_struct(KINDS[table]), is_nested=False) else encode


def is_line_of_segment(table: str) -> bool:
    """Whether the lines of a segment are those of `line_of`, so that DuckDB parses them as they are."""
    return line_of(table) is encode


def quoted(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


# -- types -------------------------------------------------------------------------------------------------------------


def _struct(struct: type[msgspec.Struct]) -> types.StructType:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return info


def _value_types(info: types.Type) -> tuple[types.Type, ...]:
    """Return the types of a field without null."""
    members = info.types if isinstance(info, types.UnionType) else (info,)
    return tuple(member for member in members if not isinstance(member, types.NoneType))


def _sql_type(info: types.Type, mixed: str) -> str:
    """Return the SQL type; `mixed` is that of a value of several types."""
    match info:
        case types.UnionType():
            inner = _value_types(info)
            return _sql_type(inner[0], mixed) if len(inner) == 1 else mixed
        case types.IntType():
            return "BIGINT"
        case types.FloatType():
            return "DOUBLE"
        case types.BoolType():
            return "BOOLEAN"
        case types.StrType() | types.LiteralType():
            return "VARCHAR"
        case types.VarTupleType() | types.ListType():
            return f"{_sql_type(info.item_type, mixed)}[]"
        case types.TupleType():
            return f"{_sql_type(info.item_types[0], mixed)}[]"
        case types.DictType():
            return f"MAP(VARCHAR, {_sql_type(info.value_type, mixed)})"
        case types.StructType():
            fields = ", ".join(f"{quoted(field.encode_name)} {_sql_type(field.type, mixed)}" for field in info.fields)
            return f"STRUCT({fields})"
    raise TypeError(f"no column type for {info}")


def _json_value(value: str, info: types.Type, depth: int = 0) -> str:
    """Return the SQL of a column's value such that `to_json` gives what `decode` expects."""
    inner = _value_types(info)
    if len(inner) > 1:
        return f"{value}::JSON"
    item = f"item{depth}"
    match inner[0]:
        case types.VarTupleType() | types.ListType() as many:
            each = _json_value(item, many.item_type, depth + 1)
            return value if each == item else f"list_transform({value}, lambda {item}: {each})"
        case types.DictType() as mapping:
            each = _json_value(item, mapping.value_type, depth + 1)
            values = f"list_transform(map_values({value}), lambda {item}: {each})"
            return value if each == item else f"map(map_keys({value}), {values})"
        case types.StructType() as struct:
            names = [quoted(field.encode_name) for field in struct.fields]
            plain = [f"{value}.{name}" for name in names]
            fields = [_json_value(path, field.type, depth) for path, field in zip(plain, struct.fields, strict=True)]
            if struct.array_like:
                return f"CASE WHEN {value} IS NOT NULL THEN json_array({', '.join(fields)}) END"
            if fields == plain:
                return value
            packed = ", ".join(f"{name} := {field}" for name, field in zip(names, fields, strict=True))
            return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"
    return value


# -- lines -------------------------------------------------------------------------------------------------------------

_encoder: Final = msgspec.json.Encoder()


def _needs_plain(info: types.Type, *, is_nested: bool) -> bool:
    """Whether a struct in it has another form in JSON than an object of all its fields."""
    match info:
        case types.StructType():
            is_other = is_nested and (info.array_like or info.cls.__struct_config__.omit_defaults)
            return is_other or any(_needs_plain(field.type, is_nested=True) for field in info.fields)
        case types.UnionType():
            return any(_needs_plain(member, is_nested=True) for member in info.types)
        case types.VarTupleType() | types.ListType():
            return _needs_plain(info.item_type, is_nested=True)
        case types.TupleType():
            return any(_needs_plain(member, is_nested=True) for member in info.item_types)
        case types.DictType():
            return _needs_plain(info.value_type, is_nested=True)
    return False


def _plain_line(record: msgspec.Struct) -> bytes:
    return _encoder.encode(_plain(record))


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {encoded: _plain(getattr(value, name)) for name, encoded in _field_names(type(value))}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _field_names(struct: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(struct)]


class _Times(msgspec.Struct):
    t: int = 0
    mono: int = 0


_times = msgspec.json.Decoder(_Times)


def _unknown_line(record: RawRecord) -> bytes:
    raw = encode(record)
    try:
        times = _times.decode(raw)
    except msgspec.ValidationError:  # its instants have another form
        times = _Times()
    head = {"kind": record.kind, "node": record.node, "agent": record.agent, "seq": record.seq, "rx": record.rx}
    return _encoder.encode({**head, "t": times.t, "mono": times.mono, "raw": raw.decode(errors="replace")})


#: Suffix of a field name → unit; the longest suffix applies.
UNITS: Final[dict[str, str]] = {
    "_bytes_s": "bytes/s", "_packets_s": "packets/s", "_switches_s": "switches/s", "_bytes": "bytes", "_pct": "%",
    "_ns": "ns", "_us": "µs", "_ms": "ms", "_s": "s", "_w": "W", "_j": "J", "_c": "°C", "_mhz": "MHz",
    "_gbs": "GB/s", "_ppm": "ppm",
}  # fmt: skip
#: Fields that are instants or differences of clocks: ns since 1970 (of monotonic clocks: since an arbitrary start).
INSTANTS: Final = (
    "t", "t_cluster", "mono", "rx", "at", "began", "ended", "looked", "read_at", "retry_at", "first_seen", "cleared_at",
    "watched_at", "created", "started", "base", "base_real", "ahead", "centre", "at_mono", "at_common", "real", "raw",
    "monotonic", "boot",
)  # fmt: skip


class Word(msgspec.Struct, frozen=True):
    """One field: its JSON name, its unit ("" without one), and the comment of its definition."""

    field: str
    unit: str
    meaning: str


def unit_of(field: str) -> str:
    """Return the unit implied by a field's name; "" without one."""
    if field in INSTANTS:
        return "ns"
    fits = [ending for ending in UNITS if field.endswith(ending)]
    return UNITS[max(fits, key=len)] if fits else ""


@cache
def words_of(kind: str) -> tuple[Word, ...]:
    """Return all fields of a kind, in the order of its record."""
    struct = KINDS[kind]
    meanings = _meanings(struct)
    return tuple(
        Word(field.encode_name, unit_of(field.encode_name), meanings.get(field.name, ""))
        for field in msgspec.structs.fields(struct)
    )


def meaning_of(kind: str) -> str:
    """Return the docstring of a kind, as one line."""
    return re.sub(r"\s+", " ", inspect.getdoc(KINDS[kind]) or "").strip()


def _meanings(struct: type[Record]) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if isinstance(each, type) and issubclass(each, Record):
            meanings.update(_of_module(each.__module__).get(each.__name__, {}))
    return meanings


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """Class → field → comment of its definition; empty without the source file."""
    try:
        source = inspect.getsource(sys.modules[name])
    except OSError:
        return {}
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        node.name: {
            each.target.id: comments[each.end_lineno or each.lineno]
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            and (each.end_lineno or each.lineno) in comments
        }
        for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
    }  # fmt: skip
