"""Patterns of filters: names with wild cards and number sets, numbers with units, and number ranges.

In `node0[1-3]*` a bracket is a set of numbers (`[001-064]`, `[1,4-7]`), `*` any text, `?` one character. Matching keeps
all alternatives at once: its time is at most the product of both lengths, for any pattern and any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ...text.format import SIZE_PREFIXES

#: Numbers. Upper bound on one bracket: it is expanded at every key press.
MAX_NUMBERS: Final = 10_000
_BRACKET = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_FIGURE = r"[-+]?\d+(?:\.\d+)?[kKMGTP]?(?:i?B)?%?"
_RANGE = re.compile(rf"({_FIGURE})(?:-({_FIGURE}))?")
_PARTS = re.compile(r"([-+]?\d+(?:\.(\d+))?)([kKMGTP]?)(i?B)?(%?)")

#: One character as typed, and whether it was quoted and so means itself.
Letters = list[tuple[str, bool]]


class BadPattern(ValueError):
    """Invalid pattern or number. `try_` is a valid one; `unfinished`: more input may make it valid."""

    def __init__(self, text: str, try_: str, *, unfinished: bool = False) -> None:
        super().__init__(text)
        self.try_, self.unfinished = try_, unfinished


class LiteralText(msgspec.Struct, frozen=True):
    """Exactly this text."""

    text: str


class NumberSet(msgspec.Struct, frozen=True):
    """Exactly one of these numbers, as written."""

    texts: frozenset[str]


class Wildcard(msgspec.Struct, frozen=True):
    """One character, or any number with `many`."""

    many: bool


class Pattern(msgspec.Struct, frozen=True):
    """A name with wild cards; case is ignored."""

    parts: tuple[LiteralText | NumberSet | Wildcard, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it has no wild card."""
        return all(isinstance(part, LiteralText) for part in self.parts)

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
        text = text.casefold()
        reached = {0}
        for part in self.parts:
            reached = _step(part, text, reached)
            if not reached:
                return False
        return len(text) in reached

    def occurs_in(self, text: str) -> bool:
        """Whether it matches the whole text or, without wild cards, a part."""
        if self.is_plain:
            return "".join(part.text for part in self.parts if isinstance(part, LiteralText)) in text.casefold()
        return self.matches(text)


def _step(part: LiteralText | NumberSet | Wildcard, text: str, reached: set[int]) -> set[int]:
    """The positions in the text after this part, from all positions before it."""
    if isinstance(part, LiteralText):
        return {end + len(part.text) for end in reached if text.startswith(part.text, end)}
    if isinstance(part, Wildcard):
        return set(range(min(reached), len(text) + 1)) if part.many else {end + 1 for end in reached if end < len(text)}
    lengths = {len(number) for number in part.texts}
    return {end + size for end in reached for size in lengths if text[end : end + size] in part.texts}


def parse_pattern(letters: Letters) -> Pattern:
    """Parse a pattern. Raises BadPattern."""
    parts: list[LiteralText | NumberSet | Wildcard] = []
    index = 0
    while index < len(letters):
        letter, quoted = letters[index]
        if quoted or letter not in "*?[":
            parts.append(LiteralText(letter.casefold()))
        elif letter == "[":
            closing = next((i for i in range(index, len(letters)) if letters[i] == ("]", False)), None)
            if closing is None:
                raise BadPattern("unclosed [", "write a number set, e.g. node[1-3]", unfinished=True)
            parts.append(NumberSet(_numbers("".join(character for character, _ in letters[index + 1 : closing]))))
            index = closing
        else:
            parts.append(Wildcard(letter == "*"))
        index += 1
    return Pattern(tuple(_joined(parts)))


def _joined(parts: Iterable[LiteralText | NumberSet | Wildcard]) -> list[LiteralText | NumberSet | Wildcard]:
    """Merge adjacent letters, and adjacent stars."""
    joined: list[LiteralText | NumberSet | Wildcard] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, LiteralText) and isinstance(last, LiteralText):
            joined[-1] = LiteralText(last.text + part.text)
        elif not (part == Wildcard(many=True) and last == part):
            joined.append(part)
    return joined


def _numbers(inside: str) -> frozenset[str]:
    """`001-003,7` → 001, 002, 003, 7. Raises BadPattern."""
    if not inside.isascii() or not _BRACKET.fullmatch(inside):
        raise BadPattern(f"[{inside}] is not a number set", "write e.g. [1-3] or [001,005-012]")
    numbers: set[str] = set()
    for piece in inside.split(","):
        first, _, last = piece.partition("-")
        last = last or first
        if max(len(first), len(last)) > 18 or int(last) - int(first) >= MAX_NUMBERS:
            raise BadPattern(f"[{inside}] contains more than {MAX_NUMBERS} numbers", "use * instead")
        if int(last) < int(first):
            raise BadPattern(f"invalid range [{piece}]", f"write [{last}-{first}]")
        width = len(first) if first.startswith("0") else 0
        numbers.update(str(number).zfill(width) for number in range(int(first), int(last) + 1))
    return frozenset(numbers)


class ParsedNumber(msgspec.Struct, frozen=True):
    """A number as written: its value, and half a unit of its last digit."""

    value: float
    half: float


class NumberRange(msgspec.Struct, frozen=True):
    """Numbers from `low` to `high`, both included within their precision: 97 includes 97.4, 3G includes 3.2G."""

    low: ParsedNumber
    high: ParsedNumber

    def matches(self, value: float) -> bool:
        """Whether the value is in the range."""
        low, high = self.low, self.high
        return low.value - low.half <= value <= high.value + high.half


class NumberComparison(msgspec.Struct, frozen=True):
    """Numbers below or above another."""

    sign: str  # "<", "<=", ">" or ">="
    figure: ParsedNumber

    def matches(self, value: float) -> bool:
        """Whether the comparison holds."""
        wanted = self.figure.value
        if self.sign.startswith("<"):
            return value < wanted or (self.sign == "<=" and value == wanted)
        return value > wanted or (self.sign == ">=" and value == wanted)


def parse_numbers(text: str, sign: str, *, binary: bool) -> NumberRange | NumberComparison:
    """Parse `10`, `2.5G` or `0-7` after a sign. `binary`: K is 1024, as in sizes. Raises BadPattern."""
    match = _RANGE.fullmatch(text) if text.isascii() else None
    if match is None:
        raise BadPattern(f"{text} is not a number", "write e.g. 10, 2.5G or 0-7")
    low, high = match[1], match[2]
    if sign in ("<", "<=", ">", ">="):
        if high is not None:
            raise BadPattern(f"{sign} takes one number, not {text}", f"write {sign}{low}, or {text} alone")
        return NumberComparison(sign, _figure(low, binary))
    first, last = _figure(low, binary), _figure(high or low, binary)
    if last.value < first.value:
        raise BadPattern(f"invalid range {text}", f"write {high}-{low}")
    return NumberRange(first, last)


def _figure(text: str, binary: bool) -> ParsedNumber:
    parts = _PARTS.fullmatch(text)
    assert parts is not None, text  # guaranteed by _RANGE
    unit = (1024.0 if binary else 1000.0) ** SIZE_PREFIXES[parts[3].upper()]
    half = 0.5 * 10.0 ** -len(parts[2] or "") * unit
    return ParsedNumber(float(parts[1]) * unit, half)
