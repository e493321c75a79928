"""Rows as text that leaves the console: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ...text.cells import width_of
from .list_kind import Kind
from .steady_order import Keyed

R = TypeVar("R", bound=Keyed)


def as_text(kind: Kind[R], rows: Sequence[R], columns: Sequence[str]) -> str:
    """These columns of the rows under their titles, aligned, every text in full; a remark on a row stands last."""
    fields = [kind.fields[key] for key in columns]
    lines = [
        [field.title for field in fields],
        *([field.text(row) for field in fields] + [kind.remark(row)] for row in rows),
    ]
    widths = [max(width_of(line[at]) for line in lines) for at in range(len(fields))]
    return "\n".join("  ".join(_padded(line, widths)).rstrip() for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text + " " * (width - width_of(text)) for text, width in zip(line, widths, strict=False)] + [
        *line[len(widths) :]
    ]


def as_json(kind: Kind[R], rows: Sequence[R]) -> str:
    """A list with an object a row: what the screen makes of it, and its records as they came, in their own units."""
    return msgspec.json.format(msgspec.json.encode([kind.as_object(row) for row in rows]), indent=2).decode()
