"""A table that leaves the console: as CSV and JSON for programs, in the records' own units, or as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from ...text.sanitize import cell, pretty
from ...text.table import table
from .list_kind import ListKind
from .row import HasKey

R = TypeVar("R", bound=HasKey)
#: How records travelled is no fact about what they tell.
_HEAD: Final = frozenset({"kind", "agent", "seq", "mono"})


@dataclass(frozen=True)
class ExportTable:
    """Rows of a list at the time of export.

    `columns`: keys of the text columns, as on the screen; CSV and JSON contain every field.
    `has_record_fields`: fields of nested records become CSV columns; for rows that hold the same kind of record.
    """

    what: str  # for the person: "Ranks: 8 of 512 ranks, as listed"
    kind: ListKind[Any]
    rows: Sequence[Any]
    columns: Sequence[str]
    has_record_fields: bool = True

    @property
    def name(self) -> str:
        """What a file of it is called after: ranks."""
        return f"{self.kind.noun.lower()}s"


def as_text(sheet: ExportTable) -> str:
    """The columns under their titles, aligned, every text in full."""
    return rows_as_text(sheet.kind, sheet.rows, sheet.columns) + "\n"


def as_json(sheet: ExportTable) -> str:
    """A list with an object a row."""
    return rows_as_json(sheet.kind, sheet.rows) + "\n"


def as_csv(sheet: ExportTable) -> str:
    """A line a row under the names of the fields; unknown is empty, and no text is a formula."""
    rows = [_flat(sheet.kind.as_object(row), sheet.has_record_fields) for row in sheet.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    return written.getvalue()


def _flat(facts: dict[str, Any], has_record_fields: bool) -> dict[str, Any]:
    """The facts, with the fields of the records within in their place; a record that is not there has no columns."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if not isinstance(value, msgspec.Struct):
            flat[name] = value
        elif has_record_fields:
            skipped = _HEAD | ({"node"} & facts.keys())
            flat |= {f"{name}.{key}": item for key, item in msgspec.to_builtins(value).items() if key not in skipped}
    return flat


def rows_as_text(kind: ListKind[R], rows: Sequence[R], columns: Sequence[str]) -> str:
    """These columns of the rows under their titles, aligned, every text in full; a remark on a row stands last."""
    fields = [kind.fields[key] for key in columns]
    lines = [[field.text(row) for field in fields] + [kind.row_note(row)] for row in rows]
    return "\n".join(table(lines, header=[field.title for field in fields]))


def rows_as_json(kind: ListKind[R], rows: Sequence[R]) -> str:
    """A list with an object a row: what the screen makes of it, and its records as they came, in their own units."""
    return pretty([kind.as_object(row) for row in rows])
