"""A table that leaves the console: as CSV and JSON for programs, in the records' own units, or as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ...text.csv_cell import cell
from . import row_export
from .list_kind import Kind

#: How records travelled is no fact about what they tell.
_HEAD: Final = frozenset({"kind", "agent", "seq", "mono"})


@dataclass(frozen=True)
class Sheet:
    """Some rows of a list, as they were when the sheet was made.

    `columns` are those that the text has, as on the screen; CSV and JSON have all that is known. `unfolds`: the fields
    of the records within become columns of the CSV, which makes sense where all rows have the same.
    """

    what: str  # for the person: "Ranks: 8 of 512 ranks, as listed"
    kind: Kind[Any]
    rows: Sequence[Any]
    columns: Sequence[str]
    unfolds: bool = True

    @property
    def name(self) -> str:
        """What a file of it is called after: ranks."""
        return f"{self.kind.noun.lower()}s"


def as_text(sheet: Sheet) -> str:
    """The columns under their titles, aligned, every text in full."""
    return row_export.as_text(sheet.kind, sheet.rows, sheet.columns) + "\n"


def as_json(sheet: Sheet) -> str:
    """A list with an object a row."""
    return row_export.as_json(sheet.kind, sheet.rows) + "\n"


def as_csv(sheet: Sheet) -> str:
    """A line a row under the names of the fields; unknown is empty, and no text is a formula."""
    rows = [_flat(sheet.kind.as_object(row), sheet.unfolds) for row in sheet.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    return written.getvalue()


def _flat(facts: dict[str, Any], unfolds: bool) -> dict[str, Any]:
    """The facts, with the fields of the records within in their place; a record that is not there has no columns."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if not isinstance(value, msgspec.Struct):
            found[name] = value
        elif unfolds:
            said = _HEAD | ({"node"} & facts.keys())
            found |= {f"{name}.{key}": one for key, one in msgspec.to_builtins(value).items() if key not in said}
    return found
