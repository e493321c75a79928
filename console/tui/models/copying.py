"""Ranks as text that leaves the console: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..text import width_of
from .jobs import RankRow
from .ranks import FIELDS


def as_text(rows: Sequence[RankRow], columns: Sequence[str]) -> str:
    """These columns of the ranks under their titles, aligned, every text in full; why a rank is missing stands last."""
    fields = [FIELDS[key] for key in columns]
    lines = [[field.title for field in fields], *([field.text(row) for field in fields] + [row.reason] for row in rows)]
    widths = [max(width_of(line[at]) for line in lines) for at in range(len(fields))]
    return "\n".join("  ".join(_padded(line, widths)).rstrip() for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text + " " * (width - width_of(text)) for text, width in zip(line, widths, strict=False)] + [
        *line[len(widths) :]
    ]


def as_json(rows: Sequence[RankRow]) -> str:
    """A list with an object a rank: what the screen makes of it, and its records as they came, in their own units."""
    return msgspec.json.format(msgspec.json.encode([_object(row) for row in rows]), indent=2).decode()


def _object(row: RankRow) -> dict[str, Any]:
    return {
        "job": row.job, "attempt": row.attempt, "rank": row.number, "state": row.state,
        "reason": row.reason or None, "silent": row.silent or None,
        "record": row.rank, "stat": row.stat,
    }  # fmt: skip
