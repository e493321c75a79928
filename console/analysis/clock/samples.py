"""Measurements of one edge in one window, as float arrays relative to an integer origin."""

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

#: Stamps further than this from the middle of the window are discarded, ns.
FAR_NS: Final = 120_000_000_000

#: x, y, bin index
_Point = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Samples:
    """Points of a window: at `x` ns after `x0` on the probing node's clock, the other clock is `y0` + `y` ns ahead."""

    x0: int  # the middle of the window
    y0: int
    width_ns: int
    forward: Floats  # (n, 2): upper bounds of the offset
    backward: Floats  # (n, 2): lower bounds
    fastest: Floats  # (n, 3): x, offset for a symmetric path, round trip
    forward_bin: Ints  # bin index of each point, for sub-samples
    backward_bin: Ints

    @property
    def bins(self) -> int:
        """Bins with data, in the direction that has fewer."""
        return min(len(self.forward), len(self.backward))

    @property
    def least_rtt_ns(self) -> int | None:
        """Minimum round-trip time."""
        return int(self.fastest[:, 2].min()) if len(self.fastest) else None

    def parts(self, parts: int) -> Bools:
        """Masks (forward points first): row 0 all points, then one row per interleaved sub-sample."""
        number = np.concatenate([self.forward_bin, self.backward_bin]) % parts
        return np.concatenate([np.ones((1, len(number)), dtype=np.bool_), number == np.arange(parts)[:, None]])


def samples(records: Sequence[ClockBins]) -> Samples:
    """Points of the window covered by `records`; implausible stamps and negative round trips are dropped."""
    first, last = min(record.base for record in records), max(_end(record) for record in records)
    x0 = (first + last) // 2
    y0 = int(median(record.ahead for record in records))
    forward, forward_bin = _points(_forward(records, x0, y0))
    backward, backward_bin = _points(_backward(records, x0, y0))
    fastest = np.array(list(_fastest(records, x0, y0)), dtype=np.float64).reshape(-1, 3)
    return Samples(x0, y0, last - first, forward, backward, fastest, forward_bin, backward_bin)


def numbered(records: Sequence[ClockBins]) -> Iterator[tuple[int, ClockBins, ClockBin]]:
    """(index, record, bin) for all bins of a window."""
    number = 0
    for record in sorted(records, key=lambda bin_: bin_.base):
        for bin_ in record.bins:
            yield number, record, bin_
            number += 1


def _end(record: ClockBins) -> int:
    return record.base + len(record.bins) * record.bin_ms * 1_000_000


def _forward(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[_Point]:
    for number, record, bin_ in numbered(records):
        if bin_.forward is not None:
            yield record.base + bin_.forward.at - x0, record.ahead + bin_.forward.ahead - y0, number


def _backward(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[_Point]:
    for number, record, bin_ in numbered(records):
        if bin_.backward is not None:
            yield record.base + bin_.backward.at - x0, record.ahead + bin_.backward.ahead - y0, number


def _fastest(records: Sequence[ClockBins], x0: int, y0: int) -> Iterator[tuple[float, float, int]]:
    """Middle of each exchange, and the offset there for a symmetric path: (t2 - t1 + t3 - t4) / 2."""
    for _, record, bin_ in numbered(records):
        for best in bin_.best:
            x = record.base + best.t1 - x0 + (best.turn + best.rtt) / 2
            y = record.ahead + best.ahead - y0 - best.rtt / 2
            if best.rtt >= 0 and abs(x) < FAR_NS and abs(y) < FAR_NS:
                yield x, y, best.rtt


def _points(points: Iterable[_Point]) -> tuple[Floats, Ints]:
    kept = [(x, y, number) for x, y, number in points if abs(x) < FAR_NS and abs(y) < FAR_NS]
    xy = np.array([(x, y) for x, y, _ in kept], dtype=np.float64).reshape(-1, 2)
    return xy, np.array([number for _, _, number in kept], dtype=np.intp)
