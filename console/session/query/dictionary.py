"""The data dictionary: what each field of each record means and in which unit, read from the records' own sources."""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec

from ...records import KINDS, Record

#: The end of a field's name → its unit; the longest that fits holds.
UNITS: Final[dict[str, str]] = {
    "_bytes_s": "bytes/s", "_packets_s": "packets/s", "_switches_s": "switches/s", "_bytes": "bytes", "_pct": "%",
    "_ns": "ns", "_ms": "ms", "_s": "s", "_w": "W", "_j": "J", "_c": "°C", "_mhz": "MHz", "_gbs": "GB/s", "_ppm": "ppm",
}  # fmt: skip
#: Instants, which carry no unit in their name: nanoseconds since 1970 (`mono`: since some start).
INSTANTS: Final = (
    "t", "t_cluster", "mono", "rx", "at", "began", "ended", "looked", "read_at", "retry_at", "first_seen", "cleared_at",
)  # fmt: skip


@dataclass(frozen=True)
class Word:
    """One field: its name as in JSON, its unit ("" where it has none), its meaning in the words of the records."""

    field: str
    unit: str
    meaning: str


def unit_of(field: str) -> str:
    """The unit that a field's name says."""
    if field in INSTANTS:
        return "ns"
    fits = [ending for ending in UNITS if field.endswith(ending)]
    return UNITS[max(fits, key=len)] if fits else ""


@cache
def words_of(kind: str) -> tuple[Word, ...]:
    """All fields of a kind, in the order of its record."""
    struct = KINDS[kind]
    meanings = _meanings(struct)
    return tuple(
        Word(field.encode_name, unit_of(field.encode_name), meanings.get(field.name, ""))
        for field in msgspec.structs.fields(struct)
    )


def meaning_of(kind: str) -> str:
    """What a record of that kind is: the first sentence or two of its docstring."""
    return re.sub(r"\s+", " ", inspect.getdoc(KINDS[kind]) or "").strip()


def _meanings(struct: type[Record]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if isinstance(each, type) and issubclass(each, Record):
            found.update(_of_module(each.__module__).get(each.__name__, {}))
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """Class → field → the comment beside it. Nothing where the sources are not there to be read."""
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
