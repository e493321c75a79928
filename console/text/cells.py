"""Text that came from a node, made fit for a terminal; and text cut or padded to a number of cells.

A node owns every byte it sends: a job name may carry escape sequences, a thousand combining marks, or four kilobytes.
What passes `clean` moves no cursor and changes no colour; what passes `fit` takes exactly the cells it was given.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Literal

from rich.cells import cell_len, set_cell_size

#: More than this of one text is never looked at: nothing on a screen is longer.
LIMIT = 4096
_REPLACEMENT = "�"
#: Control, surrogate, private, unassigned, line and paragraph separators: drawn as a replacement.
_FORBIDDEN = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Marks that stack without end and formats that reorder the line (bidi overrides, joiners): left out.
_DROPPED = frozenset({"Mn", "Me", "Cf"})


def clean(text: str) -> str:
    """The text on one line, without anything a terminal would obey.

    Control characters become their pictures (␛ for ESC); accents that have a composed form keep it.
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
