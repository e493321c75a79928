"""Instants as a report writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(ns: int) -> str | None:
    """An instant as ISO-8601 UTC with microseconds; None for 0, which is no instant."""
    if ns == 0:
        return None
    return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
