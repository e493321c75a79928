"""Rows: records as arrays of values, whose field names were sent before; the compact form of records on the wire.

A row is decoded to the same record as the JSON object that it stands for, with the same checks. The console orders the
columns: those of a kind come in the order of its fields, so that msgspec decodes a row as it decodes an object. The
mean and highest values of a digest may be lists of values that have the names of the lowest ones.
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from . import KINDS, UNREADABLE, ClockBins, ClockSnapshot, DigestibleRecord, Record
from .base import Float
from .kinds import SPECS

#: Names of one layout, as in the agent.
MOST_NAMES: Final = 128
#: Fields that are no columns: the head of a record, and what the console sets.
RESERVED: Final = frozenset({"kind", "seq", "node", "agent", "rx"})
#: Fields of a digest that may be lists, and the one that has the names of their values.
LISTED, _NAMED = ("mean", "high"), "low"
#: Types that are made for layouts; all nodes of a fleet share them.
_MOST_TYPES: Final = 512
#: What no value fits: a row has no column behind its last name.
_Nothing = Annotated[str, msgspec.Meta(min_length=2**62)]
_names_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def column_order() -> dict[str, list[str]]:
    """The columns, in order, of the kinds that a node may send as rows: those that it sends again and again."""
    kinds = [struct for struct, spec in SPECS.items() if spec.is_figure or struct in (ClockBins, ClockSnapshot)]
    return {
        SPECS[kind].name: [name for name in kind.__struct_encode_fields__ if name not in RESERVED] for kind in kinds
    }


class BadLayout(ValueError):
    """A layout with unusable names; the text states the cause."""


class Layout:
    """The fields of rows of one kind, in order. Raises BadLayout."""

    def __init__(self, kind: str, names: tuple[str, ...]) -> None:
        if len(set(names)) < len(names):
            raise BadLayout("a name occurs twice")
        if RESERVED.intersection(names):
            raise BadLayout(f"reserved name {min(RESERVED.intersection(names))}")
        self.kind, self.names = kind, names
        self._decoder = _decoder(kind, names)
        self._has_t, self._has_mono = "t" in names, "mono" in names
        self._has_lists = _NAMED in names and not set(names).isdisjoint(LISTED)
        self._columns = b"".join(f',"{name}":'.encode() + b"%b" for name in names)
        self._more = len(self._columns) - 2 * len(names) - len(names)  # bytes of an object and not of its row

    def _head(self, seq: int, t: int, mono: int) -> bytes:
        """How the object of a row begins."""
        text = f'{{"kind":"{self.kind}","seq":{seq}'
        text += "" if self._has_t else f',"t":{t}'
        return (text if self._has_mono else f'{text},"mono":{mono}').encode()

    @property
    def decodes_directly(self) -> bool:
        """Whether msgspec decodes its rows; other rows become objects first."""
        return self._decoder is not None

    def records(
        self, rows: Sequence[msgspec.Raw], first: int, t: int, mono: int
    ) -> Iterator[tuple[int, Record | None, int]]:
        """Number, record, and bytes of the object, of each row; `first` is the number of the first one.

        Lists count without the names that their values have in the object.

        None for the record of an unknown kind, with unknown fields, or invalid: decode `readable` then.
        """
        has_t, has_mono, has_lists = self._has_t, self._has_mono, self._has_lists
        more = len(self._head(first + len(rows), t, mono)) + self._more
        decode, struct = (self._decoder[0].decode, self._decoder[1]) if self._decoder else (None, Record)
        for seq, row in enumerate(rows, first):
            record: Record | None = None
            if decode is not None:
                try:
                    record = decode(row)
                    if has_lists:
                        _name_values(record)
                    record.__class__ = struct  # the same fields in the same places, encoded as an object
                    record.seq = seq
                    if not has_t:
                        record.t = t
                    if not has_mono:
                        record.mono = mono
                except (*UNREADABLE, _WrongCount):
                    record = None
            yield seq, record, more + len(bytes(row))

    def readable(self, row: msgspec.Raw, seq: int, t: int, mono: int) -> bytes | None:
        """The line that a row stands for; None if it is not an array with a value for each name."""
        try:
            values = _values_decoder.decode(row)
        except UNREADABLE:
            return None
        if len(values) != len(self.names):
            return None
        if self._has_lists:
            values = self._with_names(values)
        return self._head(seq, t, mono) + self._columns % tuple(map(bytes, values)) + b"}"

    def _with_names(self, values: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The values with objects in place of lists; a list with a wrong count stays, and is reported as none."""
        by_name = dict(zip(self.names, values, strict=True))
        for name in LISTED:
            if bytes(by_name.get(name, b"")).lstrip().startswith(b"["):
                with contextlib.suppress(*UNREADABLE, ValueError):
                    names = _names_decoder.decode(by_name[_NAMED])
                    pairs = zip(names, _values_decoder.decode(by_name[name]), strict=True)
                    by_name[name] = msgspec.Raw(msgspec.json.encode(dict(pairs)))
        return list(by_name.values())


class _WrongCount(Exception):
    """A list of values that is not as long as that of their names."""


def _name_values(record: Any) -> None:
    """Give the values in lists their names. Raises _WrongCount."""
    names, mean, high = record.low, record.mean, record.high
    if mean.__class__ is list:
        if len(mean) != len(names):
            raise _WrongCount
        record.mean = dict(zip(names, mean))  # noqa: B905 - faster
    if high.__class__ is list:
        if len(high) != len(names):
            raise _WrongCount
        record.high = dict(zip(names, high))  # noqa: B905


@lru_cache(_MOST_TYPES)
def _decoder(kind: str, names: tuple[str, ...]) -> tuple[msgspec.json.Decoder[Any], type[Record]] | None:
    """A decoder of rows, and the type of their records; None for an unknown kind, unknown names or another order.

    Its type is a subclass that adds no field: an object of it becomes one of the record's type.
    """
    struct = KINDS.get(kind)
    if struct is None:
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if names != tuple(name for name in fields if name in names):
        return None
    if any(field.required and name not in names for name, field in fields.items()):
        return None
    types = typing.get_type_hints(struct, include_extras=True)
    if issubclass(struct, DigestibleRecord) and _NAMED in names:
        types |= {name: types[name] | list[Float] for name in LISTED}
    columns = [(fields[name].name, types[fields[name].name]) for name in names]
    named = msgspec.defstruct("Named", columns, bases=(struct,), array_like=True, kw_only=False, tag=False)
    row = msgspec.defstruct("Row", [("node", _Nothing, "")], bases=(named,), array_like=True, kw_only=False, tag=False)
    return msgspec.json.Decoder(row), struct
