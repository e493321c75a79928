"""Rows of a list as a table to export or copy: aligned text, JSON, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from ...text.cells import table
from ...text.documents import pretty
from ...text.sanitize import cell
from .list_kind import ListKind
from .rows import HasKey

R = TypeVar("R", bound=HasKey)

#: Transport fields of records, which are not exported.
_HEAD: Final = frozenset({"kind", "agent", "seq", "mono"})


class ExportTable(msgspec.Struct, frozen=True):
    """Rows of a list at the time of export.

    `columns`: keys of the text columns, as on the screen; CSV and JSON contain every field.
    `has_record_fields`: fields of nested records become CSV columns; for rows that hold the same kind of record.
    """

    what: str  # title, e.g. "Ranks: 8 of 512 ranks, as listed"
    kind: ListKind[Any]
    rows: Sequence[Any]
    columns: Sequence[str]
    has_record_fields: bool = True

    @property
    def name(self) -> str:
        """Base of its file name: ranks."""
        return f"{self.kind.noun.lower()}s"


def as_text(sheet: ExportTable) -> str:
    """The columns, aligned, every text in full."""
    return rows_as_text(sheet.kind, sheet.rows, sheet.columns) + "\n"


def as_json(sheet: ExportTable) -> str:
    """A list with one object per row."""
    return rows_as_json(sheet.kind, sheet.rows) + "\n"


def as_csv(sheet: ExportTable) -> str:
    """One line per row below the field names; unknown is empty, formulas are escaped."""
    rows = [_flat(sheet.kind.as_object(row), sheet.has_record_fields) for row in sheet.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    return written.getvalue()


def _flat(facts: dict[str, Any], has_record_fields: bool) -> dict[str, Any]:
    """The facts with nested records replaced by their fields."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if not isinstance(value, msgspec.Struct):
            flat[name] = value
        elif has_record_fields:
            skipped = _HEAD | ({"node"} & facts.keys())
            flat |= {f"{name}.{key}": item for key, item in msgspec.to_builtins(value).items() if key not in skipped}
    return flat


def rows_as_text(kind: ListKind[R], rows: Sequence[R], columns: Sequence[str]) -> str:
    """These columns of the rows, aligned, every text in full, with the note of a row at its end."""
    fields = [kind.fields[key] for key in columns]
    lines = [[field.text(row) for field in fields] + [kind.row_note(row)] for row in rows]
    return "\n".join(table(lines, header=[field.title for field in fields]))


def rows_as_json(kind: ListKind[R], rows: Sequence[R]) -> str:
    """A list with one object per row: the state on the screen, and the records in their own units."""
    return pretty([kind.as_object(row) for row in rows])
