"""Sums and peaks of figures over the last while, of one thing, in as many buckets as make it forget evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: A window forgets in steps of this part of itself; what it covers is one step longer or shorter than asked for.
BUCKETS: Final = 6
#: So many names are kept in a bucket: five counters of each of 36 links, and some more. A node can invent any number.
MOST_NAMES: Final = 256


class Window:
    """`add` figures at rising instants (seconds of one clock); `total` and `peak` are over about the last `seconds`."""

    __slots__ = ("_buckets", "_newest", "_peaks", "_step", "_totals")

    def __init__(self, seconds: float) -> None:
        self._step = seconds / BUCKETS
        self._buckets: dict[int, tuple[dict[str, float], dict[str, float]]] = {}  # number: (sums, peaks)
        self._newest = -(1 << 62)
        self._totals: dict[str, float] = {}
        self._peaks: dict[str, float] = {}

    def add(self, at_s: float, sums: Mapping[str, float], peaks: Mapping[str, float] | None = None) -> None:
        """Add to sums, and raise peaks. An instant before the window's end by more than its length is forgotten."""
        number = int(at_s / self._step)
        if number > self._newest:
            self._advance(number)
        elif number <= self._newest - BUCKETS:
            return
        bucket, highest = self._buckets.setdefault(number, ({}, {}))
        for name, value in sums.items():
            if name not in bucket and len(bucket) >= MOST_NAMES:
                continue
            bucket[name] = bucket.get(name, 0.0) + value
            self._totals[name] = self._totals.get(name, 0.0) + value
        for name, value in (peaks or {}).items():
            highest[name] = max(value, highest.get(name, value))
            self._peaks[name] = max(value, self._peaks.get(name, value))

    def total(self, name: str) -> float:
        return self._totals.get(name, 0.0)

    def peak(self, name: str) -> float | None:
        """The highest value; None where there was none."""
        return self._peaks.get(name)

    def mean(self, name: str, weight: str) -> float | None:
        """The sum of one name over that of another; None where the latter is 0."""
        over = self.total(weight)
        return self.total(name) / over if over > 0 else None

    def _advance(self, number: int) -> None:
        """Begin a bucket; forget those that are too old, and sum up what is left afresh: sums do not drift so."""
        self._newest = number
        for old in [old for old in self._buckets if old <= number - BUCKETS]:
            del self._buckets[old]
        self._totals, self._peaks = {}, {}
        for sums, peaks in self._buckets.values():
            for name, value in sums.items():
                self._totals[name] = self._totals.get(name, 0.0) + value
            for name, value in peaks.items():
                self._peaks[name] = max(value, self._peaks.get(name, value))
