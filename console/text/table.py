"""Aligned columns for text output."""

from __future__ import annotations

from collections.abc import Sequence

from .cells import width_of
from .sanitize import printable


def table(
    rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), align: str = "", indent: str = "",
    rule: bool = False, widest: int | None = None,
) -> list[str]:  # fmt: skip
    """The lines of a table: columns two cells apart, without trailing blanks, every cell printable.

    `align` has `<`, `>` or `^` for each column from the first, `<` for the rest. `rule` draws a line below the header.
    A cell of more than `widest` terminal cells is not cut, but does not widen its column.
    """
    lines = [[printable(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    columns = max(map(len, lines), default=0)
    align = align.ljust(columns, "<")
    widths = [max(width_of(line[i]) for line in lines if i < len(line)) for i in range(columns)]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    if header and rule:
        lines.insert(1, ["─" * width for width in widths])
    return [f"{indent}{'  '.join(map(_aligned, line, widths, align))}".rstrip() for line in lines]


def _aligned(cell: str, width: int, align: str) -> str:
    padding = max(0, width - width_of(cell))
    left = {"<": 0, ">": padding, "^": padding // 2}[align]
    return " " * left + cell + " " * (padding - left)
