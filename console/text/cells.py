"""Sanitising of untrusted text for terminals, padding or truncation to terminal cells, and tables.

Text of a node may contain escape sequences, a thousand combining marks, or be 4 KB long. The result of `clean` has no
control sequences; the result of `fit` has exactly the requested width."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from rich.cells import cell_len, set_cell_size

from .sanitize import printable

#: Characters. Longer text is truncated before processing.
LIMIT = 4096
_REPLACEMENT = "�"
#: Control, surrogate, private, unassigned, line and paragraph separators: shown as a replacement character.
_FORBIDDEN = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Combining marks, and format characters that reorder the line (bidi overrides, joiners): removed.
_DROPPED = frozenset({"Mn", "Me", "Cf"})


def clean(text: str) -> str:
    """The text on one line, without control sequences.

    Control characters become control pictures (␛ for ESC); accents with a composed form are kept.
    """
    if text.isascii() and text.isprintable() and len(text) <= LIMIT:
        return text
    return _cleaned(text[:LIMIT])


@lru_cache(4096)
def _cleaned(text: str) -> str:
    return "".join(map(_drawn, unicodedata.normalize("NFC", text)))


def _drawn(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return " " if character in "\t\n\r" else chr(0x2400 + code)
    if 0x7E < code < 0xA0:
        return "␡" if code == 0x7F else _REPLACEMENT
    category = unicodedata.category(character)
    if category in _DROPPED:
        return ""
    return _REPLACEMENT if category in _FORBIDDEN else character


def fit(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """The text in exactly `width` cells: padded, or cut with an ellipsis."""
    size = len(text) if text.isascii() else cell_len(text)
    if size <= width:
        padding = " " * (width - size)
        return padding + text if align == "right" else text + padding
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1) + "…"


def width_of(text: str) -> int:
    """Cells the text takes on a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def table(
    rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), align: str = "", indent: str = "",
    rule: bool = False, widest: int | None = None,
) -> list[str]:  # fmt: skip
    """The lines of a table: columns two cells apart, without trailing blanks, every cell printable.

    `align` has `<`, `>` or `^` for each column from the first, `<` for the rest. `rule` draws a line below the header.
    A cell of more than `widest` terminal cells is not cut, but does not widen its column.
    """
    lines: list[list[str]] = [[printable(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
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
