"""Positions in a TOML text: the line of each key, and the span of its value.

TOML readers report lines for syntax errors only. This scanner finds the positions of keys, values and array elements in
text that a TOML reader has already accepted.
"""

from __future__ import annotations

import bisect
import re

import msgspec

#: Keys and array indices of a value: ("nodes", 1, "port").
Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'  # up to two quotes may stand directly before the closing three
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")  # numbers, true, false, dates (which may hold one space)


class TomlPosition(msgspec.Struct, frozen=True):
    """Where something stands; offsets count characters of the text, and `text[value_start:value_end]` is the value."""

    line: int  # of the key or the header, from 1
    start: int  # of the key; of the bracket, for a header; of the value, for an array element
    value_start: int
    value_end: int  # for a header: behind its closing bracket


def places(text: str) -> dict[Path, TomlPosition]:
    """The place of every header, key and array element of `text`, a valid TOML document.

    An array of tables has one entry per table, ("nodes", 0), and the place of ("nodes",) is its first header's. A
    dotted key gives a place to each table it implies, where that has none yet.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.found: dict[Path, TomlPosition] = {}
        self._tables: dict[Path, int] = {}  # how many [[…]] headers an array of tables has so far
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def scan(self) -> dict[Path, TomlPosition]:
        table: Path = ()
        while self._skip(_BLANK) < len(self.text):
            if self.text[self.pos] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self.found

    def _header(self) -> Path:
        start = self.pos
        brackets = 2 if self.text.startswith("[[", start) else 1
        self.pos += brackets
        names = self._dotted_key()
        self._skip(_SPACE)
        self.pos += brackets
        place = TomlPosition(self._line(start), start, start, self.pos)
        path: Path = ()
        for depth, name in enumerate(names, start=1):
            path += (name,)
            self.found.setdefault(path, place)
            if brackets == 2 and depth == len(names):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path += (self._tables[path] - 1,)
        if brackets == 1:
            self.found[path] = place  # the header itself, rather than what a dotted key implied before
        self.found.setdefault(path, place)
        return path

    def _pair(self, table: Path) -> None:
        start = self.pos
        names = self._dotted_key()
        self._skip(_SPACE)
        self.pos += 1  # "="
        self._skip(_SPACE)
        value_start = self.pos
        path = (*table, *names)
        self._value(path)
        place = TomlPosition(self._line(start), start, value_start, self.pos)
        for depth in range(len(table) + 1, len(path)):
            self.found.setdefault(path[:depth], place)
        self.found[path] = place

    def _value(self, path: Path) -> None:
        opening = self.text[self.pos]
        if opening == "[":
            self._sequence("]", path)
        elif opening == "{":
            self._sequence("}", path)
        elif opening in "\"'":
            self._skip(_STRING)
        else:
            end = self._match(_SCALAR)
            self.pos += len(self.text[self.pos : end].rstrip())

    def _sequence(self, closing: str, path: Path) -> None:
        """An array, or an inline table, from its opening to its closing bracket."""
        self.pos += 1
        index = 0
        while self.text[self._skip(_BLANK)] != closing:
            start = self.pos
            if closing == "}":
                self._pair(path)
            else:
                self._value((*path, index))
                self.found[(*path, index)] = TomlPosition(self._line(start), start, start, self.pos)
                index += 1
            if self.text[self._skip(_BLANK)] == ",":
                self.pos += 1
        self.pos += 1

    def _dotted_key(self) -> list[str]:
        names = [self._simple_key()]
        while self.text.startswith(".", self._skip(_SPACE)):
            self.pos += 1
            names.append(self._simple_key())
        return names

    def _simple_key(self) -> str:
        start = self._skip(_SPACE)
        if self.text[start] not in "\"'":
            self._skip(_BARE_KEY)
            return self.text[start : self.pos]
        self._skip(_STRING)
        return _unquoted(self.text[start : self.pos])

    def _line(self, offset: int) -> int:
        return bisect.bisect_left(self._newlines, offset) + 1

    def _match(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.pos)
        if match is None:
            raise ValueError(f"no valid TOML at offset {self.pos}")
        return match.end()

    def _skip(self, pattern: re.Pattern[str]) -> int:
        """Step over what `pattern` matches here; the new position."""
        self.pos = self._match(pattern)
        return self.pos


def _unquoted(key: str) -> str:
    import tomli

    (name,) = tomli.loads(f"{key} = 0")
    return name
