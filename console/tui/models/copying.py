"""Ranks as text that leaves the console: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .jobs import RankRow
from .ranks import FIELDS
from .sheets import aligned


def as_text(rows: Sequence[RankRow], columns: Sequence[str]) -> str:
    """These columns of the ranks under their titles, aligned, every text in full; why a rank is missing stands last."""
    fields = [FIELDS[key] for key in columns]
    lines = [[*(field.text(row) for field in fields), row.reason] for row in rows]
    return aligned([field.title for field in fields], lines)


def as_json(rows: Sequence[RankRow]) -> str:
    """A list with an object a rank: what the screen makes of it, and its records as they came, in their own units."""
    return msgspec.json.format(msgspec.json.encode([rank_facts(row) for row in rows]), indent=2).decode()


def rank_facts(row: RankRow) -> dict[str, Any]:
    """All that is known of a rank."""
    return {
        "job": row.job, "attempt": row.attempt, "rank": row.number, "state": row.state,
        "reason": row.reason or None, "silent": row.silent or None,
        "record": row.rank, "stat": row.stat,
    }  # fmt: skip
