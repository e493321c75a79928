"""Safe output: text of nodes for terminals, Graphviz and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NewType

#: Text without characters that steer a terminal. Only this module makes it of other text, which may be that of a node,
#: a file or an error; what prints accepts nothing else.
Printable = NewType("Printable", str)


def printable(text: str) -> Printable:
    """`text` on one line, with non-printable characters replaced by "·"."""
    if text.isprintable():
        return Printable(text)
    return Printable("".join(letter if letter.isprintable() else "·" for letter in text))


#: Control characters except tab and line feed, C1, and bidirectional and invisible formatting characters.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def printable_document(text: str) -> Printable:
    """A text of several lines and cells: control and formatting characters are replaced by "·", tabs are kept."""
    return Printable(text) if text.isprintable() else Printable(_STEERING.sub("·", text))


def printable_cells(text: str) -> Printable:
    """A piece of a drawn line in as many cells: those characters of no width are left out, also tabs and line feeds."""
    return Printable(text) if text.isprintable() else Printable(_STEERING.sub("", text.translate(_BREAKS)))


_BREAKS: Final = {9: None, 10: None}


def quoted_for_dot(text: str) -> str:
    """A quoted Graphviz string; a line break becomes `\\n`."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'


def printable_lines(text: str) -> Printable:
    """`text` with its lines, each made printable."""
    return join_lines(text.split("\n"))


def join_lines(lines: Iterable[str]) -> Printable:
    """Lines as one text, each made printable: no text in them can begin a line of its own."""
    return Printable("\n".join(map(printable, lines)))


#: In UTF-8: control characters except the line feed, C1, and bidirectional and invisible formatting characters.
_CONTROLS: Final = re.compile(
    rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
)


def printable_utf8(data: bytes) -> bytes:
    """UTF-8 lines with control and formatting characters replaced by "·"."""
    return _CONTROLS.sub("·".encode(), data)


#: Text that begins so is a formula to a spreadsheet; a leading quote makes it text (OWASP, CSV injection).
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> str:
    """The text of one CSV cell, before quoting; formulas are neutralised, lists and structs are JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
        case list() | tuple() | dict():
            from .documents import encode  # here: `gconsole --help` cleans its output and needs no JSON

            return encode(value).decode()
        case _:
            return str(value)
