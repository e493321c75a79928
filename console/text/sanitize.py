"""Text that a node wrote, fit for a terminal."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec


def printable(text: str) -> str:
    """`text` on one line, without anything that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def quoted_for_dot(text: str) -> str:
    """A quoted string of Graphviz's language; a line break becomes `\\n`."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'


def printable_lines(text: str) -> str:
    """`text` with its lines, each made printable."""
    return "\n".join(map(printable, text.split("\n")))


#: In UTF-8: control characters but the line feed, C1 among them, and what turns or hides the order of reading.
_STEERS: Final = re.compile(
    rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
)


def printable_utf8(data: bytes) -> bytes:
    """Lines of text in UTF-8, without anything that could steer a terminal."""
    return _STEERS.sub("·".encode(), data)


#: A spreadsheet takes text that begins so for a formula, and runs it; a quote before it makes it text again (OWASP).
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> str:
    """One cell, before it is quoted. Lists and structs are JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
        case list() | tuple() | dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
