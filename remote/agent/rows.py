"""Rows: the records of one instant that have the same fields are one line of arrays; the names of their fields go once.

The console's start frame orders the columns of the kinds that it takes as rows. {"layout": number, "kind": kind,
"names": [name]} declares a layout, and [number, seq of the first row, count, t, mono, [[value]]] are rows of it. A
record whose fields are met for the first time, or that is long, stays an object.

The mean and highest values of a digest have the names of the lowest ones: they are lists of the values alone, in that
order. A digest has 500 instead of 725 bytes then.
"""

import json
import operator
import re

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields

#: Layouts of one agent, rows of one line, and characters of one row; the console takes no more.
MOST_LAYOUTS, MOST_ROWS, LONGEST_ROW = 128, 64, 4 << 10
#: Fields of a digest that become lists, and the one that has the names of their values.
_LISTED, _NAMED = ("mean", "high"), "low"
#: Combinations of fields that are remembered.
_MOST_MET = 1024
_ROWS = re.compile(rb"\[[0-9]+,([0-9]+),([0-9]+),")


class Columns(object):
    """The fields of some records of one kind in the console's order; `text` names them."""

    def __init__(self, kind: str, names: "list[str]") -> None:
        self.text = " ".join([kind] + names)
        self._values = operator.itemgetter(*names)
        self._lists = [names.index(name) for name in _LISTED if name in names] if _NAMED in names else []

    def row(self, fields: "Fields") -> str:
        """The fields of a record as a JSON array. Raises ValueError and TypeError as `wire.to_json`."""
        values = self._values(fields)
        if self._lists:
            values, names = list(values), fields[_NAMED]
            for index in self._lists:
                if values[index].keys() == names.keys():
                    values[index] = [values[index][name] for name in names]
        return wire.to_json(values)


class ColumnOrder(object):
    """The console's order of columns: names by kind."""

    def __init__(self, names: "dict[str, list[str]]") -> None:
        self.names = names
        self._met: "dict[tuple[str, ...], Columns | None]" = {}

    def columns(self, kind: str, fields: "Fields") -> "Columns | None":
        """The columns of a record; None if it cannot be a row."""
        key = (kind,) + tuple(fields)
        try:
            return self._met[key]
        except KeyError:
            pass
        order = self.names.get(kind, ())
        names = [name for name in order if name in fields]
        is_whole = len(names) == len(fields) > 1  # else it has a field that the console does not know
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        columns = self._met[key] = Columns(kind, names) if is_whole else None
        return columns


class Layout(object):
    """Columns that may be declared; `number` is None until they are met again."""

    def __init__(self, text: str) -> None:
        words = text.split(" ")
        self.kind, self.names = words[0], words[1:]
        self.number: "int | None" = None

    def declaration(self) -> bytes:
        """The line that must precede its rows."""
        return wire.encode({"layout": self.number, "kind": self.kind, "names": self.names})

    def line(self, first: int, t: int, mono: int, rows: "list[str]") -> bytes:
        """Rows as a line."""
        head = "[%d,%d,%d,%d,%d,[" % (self.number or 0, first, len(rows), t, mono)
        return (head + ",".join(rows) + "]]\n").encode("ascii")

    def fields(self, values: "list[Any]") -> "Fields":
        """The fields of a row."""
        fields = dict(zip(self.names, values))  # noqa: B905 - Python 3.6
        for name, value in fields.items():
            if isinstance(value, list) and isinstance(fields.get(_NAMED), dict) and name in _LISTED:
                fields[name] = dict(zip(fields[_NAMED], value))  # noqa: B905 - Python 3.6
        return fields


class Layouts(object):
    """The layouts of one agent."""

    def __init__(self) -> None:
        self._met: "dict[str, Layout]" = {}
        self._numbered: "list[Layout]" = []

    def find(self, text: str) -> "Layout | None":
        """The layout of these columns; None if their record is to be an object."""
        layout = self._met.get(text)
        if layout is None:
            if len(self._met) >= _MOST_MET:
                self._met = {" ".join([each.kind] + each.names): each for each in self._numbered}
            self._met[text] = Layout(text)
            return None
        if layout.number is None and len(self._numbered) < MOST_LAYOUTS:
            layout.number = len(self._numbered)
            self._numbered.append(layout)
        return layout if layout.number is not None else None

    def readable(self, data: bytes) -> bytes:
        """Lines with each row as the object that it stands for, without declarations."""
        if not data.startswith((b"[", b'{"layout":')) and b"\n[" not in data and b'\n{"layout":' not in data:
            return data
        lines: "list[bytes]" = []
        for line in data.splitlines(True):
            if line.startswith(b"["):
                lines += self._objects(line)
            elif not line.startswith(b'{"layout":'):
                lines.append(line)
        return b"".join(lines)

    def _objects(self, line: bytes) -> "list[bytes]":
        number, seq, _, t, mono, rows = json.loads(line.decode("ascii"))
        layout = self._numbered[number]
        return [
            wire.encode(dict({"kind": layout.kind, "seq": seq + index, "t": t, "mono": mono}, **layout.fields(row)))
            for index, row in enumerate(rows)
        ]  # fmt: skip


def object_of(text: str, row: str) -> "tuple[str, str]":
    """Kind and JSON object of a record that is columns and a row."""
    layout = Layout(text)
    return layout.kind, wire.to_json(layout.fields(json.loads(row)))


def last_seq(line: bytes) -> int:
    """Number of the last record of a line of rows."""
    match = _ROWS.match(line)
    assert match is not None
    return int(match.group(1)) + int(match.group(2)) - 1
