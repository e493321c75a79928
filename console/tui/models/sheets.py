"""A table that leaves the console: as CSV and JSON for programs, in the records' own units, or as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..text import width_of

#: A spreadsheet takes text that begins so for a formula, and runs it; a quote before it makes it text again (OWASP).
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
#: How records travelled is no fact about what they tell.
_HEAD: Final = frozenset({"kind", "agent", "seq", "mono"})


@dataclass(frozen=True)
class Sheet:
    """Some rows, as they were when the sheet was made, and how to read them.

    `facts` gives all that is known of a row, records within it; `unfolded` names those of them whose fields become
    columns of a CSV. `columns` are (title, text of a row) as on the screen; `remark` is what stands behind them.
    """

    name: str  # what a file of it is called after: ranks
    what: str  # for the person: "Ranks: 8 of 512, as filtered and sorted"
    rows: Sequence[Any]
    facts: Callable[[Any], dict[str, Any]]
    columns: tuple[tuple[str, Callable[[Any], str]], ...]
    unfolded: tuple[str, ...] = ()
    remark: Callable[[Any], str] = lambda row: ""


def as_text(sheet: Sheet) -> str:
    """The columns under their titles, aligned, every text in full."""
    heads = [title for title, _ in sheet.columns]
    return aligned(heads, [[*(text(row) for _, text in sheet.columns), sheet.remark(row)] for row in sheet.rows])


def as_json(sheet: Sheet) -> str:
    """A list with an object a row."""
    return msgspec.json.format(msgspec.json.encode([sheet.facts(row) for row in sheet.rows]), indent=2).decode()


def as_csv(sheet: Sheet) -> str:
    """A line a row under the names of the fields; unknown is empty, and no text is a formula."""
    rows = [_flat(sheet.facts(row), sheet.unfolded) for row in sheet.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return written.getvalue()


def aligned(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest text; what a line has beyond the heads stands as it is at its end."""
    table = [heads, *lines]
    widths = [max(width_of(line[at]) for line in table) for at in range(len(heads))]
    return "\n".join(_padded(line, widths) for line in table)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text + " " * (width - width_of(text)) for text, width in zip(line, widths, strict=False)]
    return "  ".join([*cells, *line[len(widths) :]]).rstrip()


def _flat(facts: dict[str, Any], unfolded: Sequence[str]) -> dict[str, Any]:
    """The facts, with the fields of the unfolded records in their place; a record that is not there has no columns."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if name in unfolded:
            inner = msgspec.to_builtins(value) if value is not None else {}
            said = _HEAD | ({"node"} & facts.keys())
            found |= {f"{name}.{key}": one for key, one in inner.items() if key not in said}
        elif not isinstance(value, msgspec.Struct):
            found[name] = value
    return found


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
        case list() | tuple() | dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
