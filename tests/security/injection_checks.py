"""Checks that output contains no injection for a terminal, a browser or a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from html.parser import HTMLParser

#: Start of a progress line: carriage return and clear line.
_PROGRESS = re.compile(r"\r(\x1b\[K)?")


def assert_safe_text(text: str, where: str) -> None:
    """No control characters except newlines, and no bidirectional overrides."""
    for line in _PROGRESS.sub("\n", text).split("\n"):
        bad = [letter for letter in line if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")]
        assert not bad, f"{where}: {bad!r} in {line[:300]!r}"


class _Tags(HTMLParser):
    """Tags and attributes that a browser would execute or load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]


def assert_safe_page(page: str, where: str) -> None:
    """No script, image or event handler, and no external resource."""
    tags = _Tags()
    tags.feed(page)
    loads = {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not tags.tags & loads, f"{where}: {tags.tags}"
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("src", "srcdoc")], where
    assert not [value for value in tags.values if "javascript:" in value.lower()], where


def assert_safe_cells(text: str, where: str) -> None:
    """No cell that a spreadsheet would evaluate as a formula; numbers may be negative."""
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert not cell.startswith(("=", "@", "\t", "\r")), f"{where}: {cell[:80]!r}"
            is_number = re.fullmatch(r"-?[0-9.e+-]+(inf|nan)?", cell)
            assert is_number or not cell.startswith(("+", "-")), f"{where}: {cell[:80]!r}"
