"""ASCII replacements for what an encoding lacks, cell for cell: lines, blocks and glyphs of a screen without UTF-8."""

from __future__ import annotations

import codecs
from typing import Final

from rich.cells import cell_len

#: Name of the error handler for `str.encode`.
ASCII_ART: Final = "ascii-art"
_ROWS: Final = (
    ("─━┄┅┈┉╌╍═╴╶╸╺", "-"),
    ("│┃┆┇┊┋╎╏║╵╷╹╻‖", "|"),
    ("▏▎▍▌▋▊▉▐▕", "|"),
    ("▁⎽_", "_"),
    ("▂▃", "."),
    ("▄▀", ":"),
    ("▅▆", "="),
    ("▇█▓", "#"),
    ("▒", "+"),
    ("░", "."),
    ("●◆◉■", "*"),
    ("○◇□◯", "o"),
    ("◐◑◒◓", "~"),
    ("◌", "?"),
    ("▲△⇧↑", "^"),
    ("▼▽▾↓", "v"),
    ("▶▷▸→›❱⏎", ">"),
    ("◀◁◂←‹", "<"),
    ("✖✗✘×", "x"),
    ("✔✓", "+"),
    ("…·•∙", "."),
    ("–—−", "-"),
    ("±", "~"),
    ("µμ", "u"),
    ("°", "'"),
    ("≤", "<"),
    ("≥", ">"),
    ("‘’", "'"),
    ("“”", '"'),
    ("\xa0", " "),
)
_ASCII: Final = {character: ascii_ for characters, ascii_ in _ROWS for character in characters}


def replacement(character: str) -> str:
    """The ASCII text of as many cells: corners and crossings as +, dots of a plot as *, all else as ?."""
    code = ord(character)
    if character in _ASCII:
        return _ASCII[character]
    if 0x2500 <= code < 0x2580:
        return "+"
    if 0x2800 <= code < 0x2900:
        return " " if code == 0x2800 else "*"
    return "?" * cell_len(character)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(replacement, error.object[error.start : error.end])), error.end


codecs.register_error(ASCII_ART, _replace)
