"""Parser of node sets: checks and counts a text before anything is expanded.

Expanding `node[0-999999999]` would exhaust memory, and `-oProxyCommand=…` must never reach ssh. So every text, also the
content of a group, passes `terms` first.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import msgspec

IPV6_HINT = 'IPv6 addresses are not supported here; give the node a name and set address = "…"'
#: Nodes of one console at most.
MAX_NAMES = 16_384

_FOREIGN = re.compile(r"[^A-Za-z0-9_.:@*?\[\]/,!&^\s-]")
_NUMBERS = re.compile(r"\s*([0-9]{1,100})\s*(?:-\s*([0-9]{1,100})\s*(?:/\s*([0-9]{1,9})\s*)?)?")
_GROUP = re.compile(r"@[A-Za-z0-9_*?][A-Za-z0-9_.:*?-]*")


class BadNodeSet(Exception):
    """An invalid node set; `nearest` is a suggestion, or ""."""

    def __init__(self, text: str, nearest: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.nearest = nearest


class Numbers(msgspec.Struct, frozen=True):
    """One piece of a bracket: 7, 001-064 or 0-20/2."""

    begin: int
    end: int
    step: int
    width: int  # digits, zero-padded; 0: not padded

    def __len__(self) -> int:
        return min((self.end - self.begin) // self.step + 1, MAX_NAMES + 1)  # len() cannot return more than a C long

    def __iter__(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.begin, self.end + 1, self.step))


class Term(msgspec.Struct, frozen=True):
    """One operand of a node set and the operator before it: "," adds, "!" takes away, "&" intersects, "^" differs."""

    operator: str
    text: str
    parts: tuple[str | tuple[Numbers, ...], ...]  # literal text, and brackets

    @property
    def is_plain(self) -> bool:
        """True where the text alone says which nodes are added: no set operation, no group, no wildcard."""
        return self.operator == "," and not re.search(r"^@|[*?]", self.text)

    @property
    def count(self) -> int:
        """How many names, repeated ones included; a number above MAX_NAMES may be larger in truth."""
        return math.prod(sum(map(len, part)) for part in self.parts if not isinstance(part, str))

    def names(self) -> Iterator[str]:
        """Every name as written, repeated ones included."""
        choices = [(part,) if isinstance(part, str) else tuple(itertools.chain(*part)) for part in self.parts]
        return map("".join, itertools.product(*choices))


def terms(text: str) -> list[Term]:
    """Parse a node set into its operands. Raises BadNodeSet where it is invalid or an operand is too large."""
    if not text.strip():
        raise BadNodeSet("empty node set")
    foreign = _FOREIGN.search(text)
    if foreign:
        raise BadNodeSet(f'{quoted(text)} contains "{foreign.group()}", which a node name cannot contain')
    operands = [_term(operator, piece) for operator, piece in _split(text)]
    for term in operands:
        if term.count > MAX_NAMES:
            raise BadNodeSet(f"{quoted(term.text)} names more than {MAX_NAMES:,} nodes")
    return operands


def quoted(text: str) -> str:
    """A text in quotes, cut to what fits into an error."""
    return f'"{shortened(text.strip())}"'


def shortened(text: str) -> str:
    """A text cut to what fits into an error."""
    return text if len(text) <= 80 else f"{text[:77]}…"


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Operators and operands; an operator inside a bracket is part of its operand."""
    operator, start, opened = ",", 0, -1
    for position, letter in enumerate(f"{text},"):
        if opened >= 0:
            if letter == "]":
                opened = -1
            elif letter == "[" or position == len(text):
                raise BadNodeSet(f'unclosed "[" in {quoted(text[opened:])}')
        elif letter == "[":
            opened = position
        elif letter == "]":
            raise BadNodeSet(f'unmatched "]" in {quoted(text[start : position + 1])}')
        elif letter in ",!&^":
            piece = text[start:position].strip()
            if not piece:
                where = f'after "{operator}"' if start else f'before "{letter}"'
                raise BadNodeSet(f"a name is missing {where} in {quoted(text)}")
            yield operator, piece
            operator, start = letter, position + 1


def _term(operator: str, text: str) -> Term:
    pieces = re.split(r"\[([^\]]*)\]", text)  # literal, inside of a bracket, literal, …
    literals, brackets = pieces[::2], pieces[1::2]
    literal = "".join(literals)
    if ":" in "".join(brackets):
        raise BadNodeSet(f"{quoted(text)}: {IPV6_HINT}")
    if re.search(r"\s", literal):
        raise BadNodeSet(f'{quoted(text)} contains a space; separate names with ","')
    if "/" in literal:
        raise BadNodeSet(f'{quoted(text)} contains "/", which a node name cannot contain')
    if literals[0].startswith("-"):
        raise BadNodeSet(f'{quoted(text)} begins with "-"; a name begins with a letter, a digit or "_"')
    if literals[0].startswith("@") and not _GROUP.fullmatch(re.sub(r"\[[^\]]*\]", "0", text)):
        raise BadNodeSet(f"{quoted(text)} is not a group; use @name or @source:name")
    ranges = [_bracket(inside) for inside in brackets]
    for before, bracket, after in zip(literals, ranges, literals[1:], strict=False):
        _refuse_ambiguous(text, before, bracket, after)
    for between in literals[1:-1]:
        if not between or between.isdigit():
            raise BadNodeSet(f'{quoted(text)}: two ranges need a letter, "-" or "." between them')
    parts = itertools.chain.from_iterable(zip(literals, [*ranges, ()], strict=True))
    return Term(operator, text, tuple(part for part in parts if part))


def _bracket(inside: str) -> tuple[Numbers, ...]:
    return tuple(_numbers(piece, inside) for piece in inside.split(","))


def _numbers(piece: str, inside: str) -> Numbers:
    if not piece.strip():
        raise BadNodeSet(f"the range [{inside}] is empty" if not inside.strip() else f"[{inside}] has an empty range")
    match = _NUMBERS.fullmatch(piece)
    if match is None:
        raise BadNodeSet(f"{quoted(piece)} is not a range; use [1-8], [001-064,071] or [0-20/2]")
    begin, end, step = match[1], match[2] or match[1], int(match[3] or 1)
    padded = any(len(bound) > 1 and bound.startswith("0") for bound in (begin, end))
    if padded and len(begin) != len(end):
        raise BadNodeSet(f"the ends of {quoted(piece)} must have the same number of digits")
    if int(begin) > int(end):
        raise BadNodeSet(f"invalid range {quoted(piece)} (start > end)")
    if not step:
        raise BadNodeSet(f"{quoted(piece)} has a step of 0")
    return Numbers(int(begin), int(end), step, len(begin) if padded else 0)


def _refuse_ambiguous(text: str, before: str, bracket: tuple[Numbers, ...], after: str) -> None:
    """Refuse what ClusterShell reads as something else: its `node5[9-10]` is node59 to node510, 452 names."""
    lengths = {max(piece.width, len(str(bound))) for piece in bracket for bound in (piece.begin, piece.end)}
    if before[-1:].isdigit() and len(lengths) > 1:
        raise BadNodeSet(f"{quoted(text)}: behind a digit, all numbers of a range must have the same number of digits")
    if after[:1].isdigit() and any(piece.step > 1 for piece in bracket):
        raise BadNodeSet(f"{quoted(text)}: a range with a step cannot stand before a digit")
