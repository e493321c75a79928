"""Untrusted values of dumps and logs, limited to what a record may hold; and the error of an unreadable source."""

import re

from ..proc.procfs import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

_LARGEST = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,19}\Z")


class SourceError(Exception):
    """A source cannot be read: `status` as in a `pg_status` record, `text` the problem, `try_` the remedy."""

    def __init__(self, status: str, text: str, try_: str = "") -> None:
        super(SourceError, self).__init__(text)
        self.status, self.text, self.try_ = status, text, try_


def count(value: "Any") -> "int | None":
    """A non-negative integer, also of decimal text; None for anything else, including -1 (unset)."""
    if isinstance(value, str):
        value = int(value) if _DIGITS.match(value) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        return None
    return value


def instant(value: "Any") -> "int | None":
    """A timestamp in ns; None for 0 (unset)."""
    return count(value) or None


def figure(value: "Any") -> "float | None":
    """A non-negative number; None for anything else, including NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        return None
    return float(value)


def text(value: "Any", limit: int) -> str:
    """At most `limit` printable characters of a string or integer; "" for anything else."""
    if isinstance(value, str):
        return printable(value, limit)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST else ""


def elements(shapes: "Iterable[Iterable[int]]") -> "int | None":
    """Total number of elements of tensors of these shapes; None if it exceeds 64 bits."""
    total = 0
    for shape in shapes:
        product = 1
        for size in shape:
            product *= size
        total += product
    return total if total <= _LARGEST else None
