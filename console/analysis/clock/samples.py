"""What one edge measured in one window, as arrays about an origin: exact, whatever the clocks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...records import ClockBin, ClockBins

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

#: Stamps further than this from the middle of their window are no stamps of that window, ns.
FAR_NS: Final = 120_000_000_000

#: x, y, number of the bin.
_Point = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Samples:
    """A window's points: `x` ns after `x0` on the asking node's clock; the other's clock is `y0` + `y` ns ahead."""

    x0: int  # the middle of the window
    y0: int
    width_ns: int
    forward: Floats  # (n, 2): upper bounds of the offset
    backward: Floats  # (n, 2): lower bounds
    fastest: Floats  # (n, 3): x, the offset if both ways took equally long, round trip
    forward_bin: Ints  # the number of the bin that a point is of, for sub-samples
    backward_bin: Ints

    @property
    def bins(self) -> int:
        """In how many bins the direction with less data has any."""
        return min(len(self.forward), len(self.backward))

    @property
    def least_rtt_ns(self) -> int | None:
        return int(self.fastest[:, 2].min()) if len(self.fastest) else None

    def parts(self, parts: int) -> Bools:
        """Which points, forward ones first, are of the whole, and of each of so many interleaved sub-samples."""
        number = np.concatenate([self.forward_bin, self.backward_bin]) % parts
        return np.concatenate([np.ones((1, len(number)), dtype=np.bool_), number == np.arange(parts)[:, None]])


def samples(records: Sequence[ClockBins]) -> Samples:
    """The points of a window, which is what these records cover.

    Stamps that cannot belong to it (of another day, at the far end of 64 bits) and round trips below zero are left out:
    a stamp is what a stranger's node says.
    """
    first, last = min(record.base for record in records), max(_end(record) for record in records)
    x0 = (first + last) // 2
    y0 = int(median(record.ahead for record in records))
    forward, forward_bin = _points(_forward(records, x0, y0))
    backward, backward_bin = _points(_backward(records, x0, y0))
    fastest = np.array(list(_fastest(records, x0, y0)), dtype=np.float64).reshape(-1, 3)
    return Samples(x0, y0, last - first, forward, backward, fastest, forward_bin, backward_bin)


def numbered(records: Sequence[ClockBins]) -> Iterator[tuple[int, ClockBins, ClockBin]]:
    """All bins of a window, numbered, each with the record that it is in."""
    number = 0
    for record in sorted(records, key=lambda one: one.base):
        for one in record.bins:
            yield number, record, one
            number += 1


def _end(record: ClockBins) -> int:
    return record.base + len(record.bins) * record.bin_ms * 1_000_000


def _forward(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[_Point]:
    for number, record, one in numbered(records):
        if one.forward is not None:
            yield record.base + one.forward.at - x0, record.ahead + one.forward.ahead - y0, number


def _backward(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[_Point]:
    for number, record, one in numbered(records):
        if one.backward is not None:
            yield record.base + one.backward.at - x0, record.ahead + one.backward.ahead - y0, number


def _fastest(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[tuple[float, float, int]]:
    """Of each exchange its middle, and the offset there if both ways took equally long: (t2 - t1 + t3 - t4) / 2."""
    for _, record, one in numbered(records):
        for best in one.best:
            x = record.base + best.t1 - x0 + (best.turn + best.rtt) / 2
            y = record.ahead + best.ahead - y0 - best.rtt / 2
            if best.rtt >= 0 and abs(x) < FAR_NS and abs(y) < FAR_NS:
                yield x, y, best.rtt


def _points(found: Iterable[_Point]) -> tuple[Floats, Ints]:
    kept = [(x, y, number) for x, y, number in found if abs(x) < FAR_NS and abs(y) < FAR_NS]
    xy = np.array([(x, y) for x, y, _ in kept], dtype=np.float64).reshape(-1, 2)
    return xy, np.array([number for _, _, number in kept], dtype=np.intp)
