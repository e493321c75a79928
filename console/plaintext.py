"""Text that a node wrote, fit for a terminal."""

from __future__ import annotations


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
