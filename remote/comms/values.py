"""Values as they come out of dumps and logs, made what a record may hold: bounded, printable, or None."""

import re

from ..proc.procfs import printable

_LARGEST = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,19}\Z")


def count(value):
    """A number from 0 on, also where it came as a text; None for anything else, and for -1, which means none."""
    if isinstance(value, str):
        value = int(value) if _DIGITS.match(value) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        return None
    return value


def instant(value):
    """An instant in ns; 0 is none."""
    return count(value) or None


def figure(value):
    """A figure from 0 on; None for anything else, NaN included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        return None
    return float(value)


def text(value, most):
    """Something as text of at most `most` printable characters; "" for what is none."""
    if isinstance(value, str):
        return printable(value, most)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST else ""


def elements(sizes):
    """How many elements tensors of these shapes have together; None where that is no sensible number."""
    total = 0
    for shape in sizes:
        product = 1
        for size in shape:
            product *= size
        total += product
    return total if total <= _LARGEST else None
