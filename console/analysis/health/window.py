"""Sums and peaks of figures over a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Buckets per window: its actual length varies by one bucket.
BUCKETS: Final = 6
#: Names per bucket: eleven counters of each of 36 links and some more. Bounds what a faulty node can add.
MOST_NAMES: Final = 512


class Window:
    """`add` figures at rising instants (seconds of one clock); `total` and `peak` are over about the last `seconds`."""

    __slots__ = ("_buckets", "_newest", "_notable", "_peaks", "_step", "_totals")

    def __init__(self, seconds: float) -> None:
        self._step = seconds / BUCKETS
        self._buckets: dict[int, tuple[dict[str, float], dict[str, float]]] = {}  # number: (sums, peaks)
        self._newest = self._notable = -(1 << 62)  # numbers of buckets
        self._totals: dict[str, float] = {}
        self._peaks: dict[str, float] = {}

    def add(
        self, at_s: float, sums: Mapping[str, float], peaks: Mapping[str, float] | None = None, *, notable: bool = False
    ) -> None:
        """Add to sums and raise peaks. Instants older than the window are ignored. `notable`: see `is_notable`."""
        number = int(at_s / self._step)
        if number > self._newest:
            self._advance(number)
        elif number <= self._newest - BUCKETS:
            return
        if notable:
            self._notable = max(number, self._notable)
        bucket, highest = self._buckets.setdefault(number, ({}, {}))
        for name, value in sums.items():
            if name not in bucket and len(bucket) >= MOST_NAMES:
                continue
            bucket[name] = bucket.get(name, 0.0) + value
            self._totals[name] = self._totals.get(name, 0.0) + value
        for name, value in (peaks or {}).items():
            highest[name] = max(value, highest.get(name, value))
            self._peaks[name] = max(value, self._peaks.get(name, value))

    @property
    def is_notable(self) -> bool:
        """Whether the window contains sums that were added as notable, such as errors."""
        return self._notable > self._newest - BUCKETS

    def total(self, name: str) -> float:
        """The sum over the window."""
        return self._totals.get(name, 0.0)

    def peak(self, name: str) -> float | None:
        """The highest value; None where there was none."""
        return self._peaks.get(name)

    def mean(self, name: str, weight: str) -> float | None:
        """The sum of one name over that of another; None where the latter is 0."""
        over = self.total(weight)
        return self.total(name) / over if over > 0 else None

    def _advance(self, number: int) -> None:
        """Start a bucket, drop expired ones, and sum the rest anew, so that rounding errors do not accumulate."""
        self._newest = number
        for old in [old for old in self._buckets if old <= number - BUCKETS]:
            del self._buckets[old]
        self._totals, self._peaks = {}, {}
        for sums, peaks in self._buckets.values():
            for name, value in sums.items():
                self._totals[name] = self._totals.get(name, 0.0) + value
            for name, value in peaks.items():
                self._peaks[name] = max(value, self._peaks.get(name, value))
