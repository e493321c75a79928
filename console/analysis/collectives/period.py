"""The period of a sequence of operations: the operations of one training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Newest items of a sequence in which a period is sought.
MOST_PERIODIC: Final = 1024


def period_of(tokens: Sequence[object], least: int = 3) -> int | None:
    """Period of a sequence that repeats at least `least` times to its end, and for at least half of it; else None."""
    tokens = tokens[-MOST_PERIODIC:]
    count = len(tokens)
    for period in range(1, count // least + 1):
        unequal = (index for index in range(count - 1, period - 1, -1) if tokens[index] != tokens[index - period])
        begin = next(unequal, -1)
        if begin < 0 or count - (begin + 1) + period >= max(least * period, count / 2):
            return period
    return None
