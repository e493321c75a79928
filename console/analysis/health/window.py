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

    __slots__ = ("_buckets", "_newest", "_notable", "_peaks", "_step", "_summed", "_totals")

    def __init__(self, seconds: float) -> None:
        self._step = seconds / BUCKETS
        self._buckets: dict[int, tuple[dict[str, float], dict[str, float]]] = {}  # number: (sums, peaks)
        self._newest = self._notable = -(1 << 62)  # numbers of buckets
        self._summed = True  # whether the next two are those of all buckets
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
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}, {}
        _add(bucket[0], sums, MOST_NAMES)
        if peaks:
            _raise(bucket[1], peaks)
        self._summed = False

    @property
    def is_notable(self) -> bool:
        """Whether the window contains sums that were added as notable, such as errors."""
        return self._notable > self._newest - BUCKETS

    def total(self, name: str) -> float:
        """The sum over the window."""
        if not self._summed:
            self._sum()
        return self._totals.get(name, 0.0)

    def peak(self, name: str) -> float | None:
        """The highest value; None where there was none."""
        if not self._summed:
            self._sum()
        return self._peaks.get(name)

    def mean(self, name: str, weight: str) -> float | None:
        """The sum of one name over that of another; None where the latter is 0."""
        over = self.total(weight)
        return self.total(name) / over if over > 0 else None

    def _advance(self, number: int) -> None:
        """Start a bucket, and drop expired ones."""
        self._newest = number
        for old in [old for old in self._buckets if old <= number - BUCKETS]:
            del self._buckets[old]
        self._summed = False

    def _sum(self) -> None:
        """Sum all buckets anew, so that rounding errors do not accumulate; most figures are never asked for."""
        self._totals, self._peaks = {}, {}
        for sums, peaks in self._buckets.values():
            _add(self._totals, sums)
            _raise(self._peaks, peaks)
        self._summed = True


def _add(totals: dict[str, float], sums: Mapping[str, float], most_names: int = 1 << 30) -> None:
    for name, value in sums.items():
        if name in totals:
            totals[name] += value
        elif len(totals) < most_names:
            totals[name] = value


def _raise(highest: dict[str, float], peaks: Mapping[str, float]) -> None:
    for name, value in peaks.items():
        if name not in highest or highest[name] < value:
            highest[name] = value
