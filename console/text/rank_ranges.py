"""Sets of rank numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(ranks: Iterable[int]) -> str:
    """`0-136,138-511` for those numbers; `–` for none, where nobody knows the number."""
    ordered = sorted(set(ranks))
    parts: list[str] = []
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        parts.append(f"{ordered[at]}" if at == end else f"{ordered[at]}-{ordered[end]}")
        at = end + 1
    return ",".join(parts) or "–"
