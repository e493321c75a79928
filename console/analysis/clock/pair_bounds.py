"""Offset of two nodes' clocks (an edge) in one window, with its error bound: samples, feasible region, best line.

A probe cannot arrive before it was sent, so forward points lie above the true offset and backward points below it. Over
one window the drift is linear (`slack` covers wander), so the true line lies under all forward and above all backward
points: the feasible region bounds the offset for any path asymmetry.

The best line is the median of three estimators: quantile regression over the fastest of each bin, middle of the widest
strip between the two clouds, least squares over the fastest exchanges. It was within a factor of 2 of the best in every
scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...records import ClockBin, ClockBins
from ...records.clock import ProbeMethod, Stamps, WindowStatus

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

#: Stamps further than this from the middle of the window are discarded, ns.
FAR_NS: Final = 120_000_000_000

#: x, y, bin index
_Point = tuple[int, int, int]
#: Maximum drift between two healthy clocks (a crystal is within 50 ppm; NTP does not slew MONOTONIC_RAW).
MOST_SLOPE: Final = 200e-6
#: Quantile of the regression: above the minimum, so that one outlier does not set the floor.
TAU: Final = 0.15
ROUNDS: Final = 20
#: Share and minimum number of the fastest exchanges used by least squares.
FASTEST: Final = 0.05
LEAST_FASTEST: Final = 20
#: Interleaved sub-samples for repeatability.
PARTS: Final = 4
#: Slope (ns per ns) and offset (ns) at x = 0.
Line = tuple[float, float]
#: Minimum bins per direction for a fit.
LEAST_BINS: Final = 10
#: Clock wander within a 4 s window, ns (from 2 us in 30 s); grows with the square of the time.
WANDER_NS: Final = 300.0
_WANDER_OVER_NS: Final = 4e9
#: Error of converting CLOCK_REALTIME to MONOTONIC_RAW, ns: 210 ns read bracket (median, best of five) at either end.
READ_NS: Final = 2 * 210.0
#: Stamp noise is the 1/CALM quantile of the bins' mismatch, times EXTREME because the extreme stamps set the bound.
#: (Synthetic stamps, normal error 0.85 us, path 2.5 us: 0 of 120 bounds violated, 9 without; path 1 us: 1, 23 without.)
CALM: Final = 10
EXTREME: Final = 3.0
#: Minimum share and count of non-causal replies for `noncausal`. (Kernel stamps are rarely early by about 0.4 us.)
NONCAUSAL_SHARE: Final = 0.005
NONCAUSAL: Final = 3


class EdgeWindow(msgspec.Struct, frozen=True):
    """Offset of the clock of `dst` from that of `src` (both MONOTONIC_RAW) over one window.

    The line is y0 + offset + slope * (t - x0) at an instant `t` of `src`. Line and region are None unless the status is
    `ok`; `noncausal` keeps the line, without a bound.
    """

    src: str
    dst: str
    x0: int
    y0: int
    width_ns: int
    method: ProbeMethod
    stamps: Stamps
    status: WindowStatus
    line: Line | None = None
    region: Region | None = None
    repeat_ns: float | None = None
    r_squared: float | None = None  # fit quality, not accuracy: a biased path has 1.0
    min_rtt_ns: int | None = None
    sent: int = 0
    kept: int = 0
    noncausal: int = 0
    missed_pct: float = 0.0  # probes not sent because the node was busy

    @property
    def lost(self) -> int:
        """Probes without a usable reply."""
        return max(0, self.sent - self.kept - self.noncausal)

    def at(self, t: int) -> tuple[float, float, float]:
        """Minimum, best and maximum offset beyond `y0` (ns) at instant `t` of `src`; ValueError without a bound."""
        if self.line is None or self.region is None:
            raise ValueError(f"the window of {self.src} to {self.dst} has no bound ({self.status})")
        x = float(t - self.x0)
        low, high = self.region.interval(x)
        slope, offset = self.line
        return low, min(max(offset + slope * x, low), high), high

    @property
    def bound_ns(self) -> float | None:
        """Maximum error of the line at the middle of the window, ns."""
        if self.region is None:
            return None
        low, best, high = self.at(self.x0)
        return max(high - best, best - low)


def edge_window(records: Sequence[ClockBins], stepped_ns: int = 0) -> EdgeWindow:
    """Fit the window covered by `records`, which are of one edge, method and agent.

    `stepped_ns`: sum of the clock steps of both nodes within the window. Every stamp may be off by as much, because
    stamps of the kernel are converted between two clocks of which one was stepped.
    """
    points = samples(records)
    counts = {
        "sent": sum(bin_.sent for record in records for bin_ in record.bins),
        "kept": sum(max(0, bin_.got - bin_.noncausal) for record in records for bin_ in record.bins),
        "noncausal": sum(bin_.noncausal for record in records for bin_ in record.bins),
    }
    ticks = sum(record.ticks for record in records)
    missed_pct = 100.0 * sum(record.missed for record in records) / ticks if ticks else 0.0
    last = records[-1]
    status: WindowStatus = "ok"
    line = possible = repeat_ns = r_squared = None
    if points.bins < LEAST_BINS:
        status = "few" if counts["kept"] else "no_answer"
    else:
        possible = region(points.forward, points.backward, slack_ns(points.width_ns) + noise_ns(records) + stepped_ns)
        line, repeat_ns = best_line(points, possible, counts["kept"])
        r_squared = _r_squared(points, line)
        if counts["noncausal"] >= max(NONCAUSAL, NONCAUSAL_SHARE * counts["kept"]):
            possible = None
        if possible is None:
            status = "noncausal"
    return EdgeWindow(
        src=last.node, dst=last.dst, x0=points.x0, y0=points.y0, width_ns=points.width_ns, method=last.method,
        stamps=last.stamps, status=status, line=line, region=possible, repeat_ns=repeat_ns, r_squared=r_squared,
        min_rtt_ns=points.least_rtt_ns, missed_pct=missed_pct, **counts,
    )  # fmt: skip


class Samples(msgspec.Struct, frozen=True):
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


class Region(msgspec.Struct, frozen=True):
    """Convex polygon of possible (slope, offset at x = 0), by the slopes of its corners; ns and ns per ns."""

    slopes: Floats  # rising
    highest: Floats  # greatest possible offset at x = 0 with that slope
    lowest: Floats

    def interval(self, x: float) -> tuple[float, float]:
        """Minimum and maximum offset at `x` (ns from the window's middle, also outside the window)."""
        return float((self.lowest + self.slopes * x).min()), float((self.highest + self.slopes * x).max())

    @property
    def widest(self) -> tuple[float, float]:
        """Slope and offset of the line in the middle of the widest strip between the two clouds."""
        best = int(np.argmax(self.highest - self.lowest))
        return float(self.slopes[best]), float(self.highest[best] + self.lowest[best]) / 2


def region(forward: Floats, backward: Floats, slack: float) -> Region | None:
    """Possible lines if each point may be off by `slack` ns; None: stamps are not causal or a clock was stepped."""
    if not len(forward) or not len(backward):
        return None
    above, below = lower_hull(forward), lower_hull(backward * (1.0, -1.0)) * (1.0, -1.0)
    bends = np.concatenate([_bends(above), _bends(below), [-MOST_SLOPE, MOST_SLOPE]])
    slopes = np.unique(bends[np.abs(bends) <= MOST_SLOPE])
    gap = _ceiling(above, slopes) - _floor(below, slopes) + 2 * slack
    possible = gap >= 0
    if not possible.any():
        return None
    # Between two neighbouring slopes the gap is linear: it ends where it crosses zero.
    crossing = np.flatnonzero(possible[1:] != possible[:-1])
    left, right = slopes[crossing], slopes[crossing + 1]
    ends = left + (right - left) * gap[crossing] / (gap[crossing] - gap[crossing + 1])
    corners = np.unique(np.concatenate([slopes[possible], ends]))
    highest, lowest = _ceiling(above, corners) + slack, _floor(below, corners) - slack
    return Region(corners, np.maximum(highest, lowest), np.minimum(highest, lowest))


def lower_hull(points: Floats) -> Floats:
    """Lower convex hull, by rising x (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for x, y in points[np.lexsort((points[:, 1], points[:, 0]))].tolist():
        while len(hull) > 1:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if (bx - ax) * (y - ay) > (by - ay) * (x - ax):
                break
            hull.pop()
        if hull and hull[-1][0] == x:
            continue  # straight above the first of that x
        hull.append((x, y))
    return np.array(hull, dtype=np.float64)


def _bends(hull: Floats) -> Floats:
    """The slopes at which another corner of the hull touches the line."""
    step = np.diff(hull, axis=0)
    bends: Floats = step[:, 1] / step[:, 0]
    return bends


def _ceiling(above: Floats, slopes: Floats) -> Floats:
    """For each slope, the offset at x = 0 of the highest line of that slope under all points."""
    highest: Floats = (above[:, 1] - slopes[:, None] * above[:, 0]).min(axis=1)
    return highest


def _floor(below: Floats, slopes: Floats) -> Floats:
    lowest: Floats = (below[:, 1] - slopes[:, None] * below[:, 0]).max(axis=1)
    return lowest


def best_line(points: Samples, possible: Region | None, got: int) -> tuple[Line, float | None]:
    """Median line of the estimators at both ends of the window, and its repeatability (ns).

    `got`: exchanges of the window. Without a region: mean of two estimators. Repeatability is the largest deviation of
    the interleaved sub-samples at the middle; it is not accuracy.
    """
    masks, ways = points.parts(PARTS), len(points.forward)
    both = masks[:, :ways].any(axis=1) & masks[:, ways:].any(axis=1)
    whole, *parts = quantile_lines(points.forward, points.backward, masks[both])
    lines = [(float(whole[0]), float(whole[1])), *_fastest_line(points.fastest, got)]
    if possible is not None:
        lines.append(possible.widest)
    first, last = _ends(points)
    at_first = median(offset + slope * first for slope, offset in lines)
    at_last = median(offset + slope * last for slope, offset in lines)
    slope = (at_last - at_first) / (last - first)
    line = (slope, at_first - slope * first)
    return line, max((abs(float(offset) - line[1]) for _, offset in parts), default=None)


def _ends(points: Samples) -> tuple[float, float]:
    x = np.concatenate([points.forward[:, 0], points.backward[:, 0]])
    first, last = float(x.min()), float(x.max())
    return (first, last) if last > first else (first, first + 1.0)


def quantile_lines(forward: Floats, backward: Floats, masks: Bools) -> Floats:
    """Common slope and one floor per direction, by pinball loss; the offset is halfway between the floors.

    One row (slope, offset) per row of `masks`, which selects points (forward first). Iteratively reweighted least
    squares with three unknowns. Raises ValueError without points in both directions.
    """
    x = np.concatenate([forward[:, 0], backward[:, 0]]) / 1e9
    y = np.concatenate([forward[:, 1], backward[:, 1]])
    sign = np.concatenate([np.ones(len(forward)), -np.ones(len(backward))])
    if not (masks[:, : len(forward)].any(axis=1) & masks[:, len(forward) :].any(axis=1)).all():
        raise ValueError("a line needs points in both directions")
    design = np.stack([x, sign > 0, sign < 0]).astype(np.float64)  # (3, n)
    products, by_y = (design[:, None, :] * design[None, :, :]).reshape(9, -1).T, (design * y).T
    weights = masks.astype(np.float64)
    solution = np.zeros((len(masks), 3))
    middle = (len(x) - 1) // 2, len(x) // 2
    for _ in range(ROUNDS):
        matrix = (weights @ products).reshape(-1, 3, 3)
        matrix[:, 0, 0] += 1e-12 * (1.0 + matrix[:, 0, 0])  # all points at one x: any slope will do
        solution = np.linalg.solve(matrix, (weights @ by_y)[:, :, None])[:, :, 0]
        outward = sign * (y - solution @ design)
        size = np.abs(outward)
        ordered = size.copy()
        ordered.partition(middle, axis=1)  # np.median takes six times as long for so few points
        floor = np.maximum(1.0, 5e-4 * (ordered[:, middle[0]] + ordered[:, middle[1]])[:, None])
        weights = masks * np.where(outward > 0, TAU, 1 - TAU) / np.maximum(size, floor)
    slopes = np.clip(solution[:, 0] / 1e9, -MOST_SLOPE, MOST_SLOPE)
    return np.stack([slopes, (solution[:, 1] + solution[:, 2]) / 2], axis=1)


def _fastest_line(fastest: Floats, got: int) -> list[Line]:
    wanted = max(LEAST_FASTEST, int(got * FASTEST))
    if len(fastest) < LEAST_FASTEST:
        return []
    chosen = fastest[np.argsort(fastest[:, 2], kind="stable")[:wanted]]
    x, y = chosen[:, 0] - chosen[:, 0].mean(), chosen[:, 1]
    spread = float(x @ x)
    slope = float(np.clip(float(x @ y) / spread if spread else 0.0, -MOST_SLOPE, MOST_SLOPE))
    return [(slope, float(y.mean() - slope * chosen[:, 0].mean()))]


def slack_ns(width_ns: int) -> float:
    """Maximum error of a point in a window of that width, ns: clock wander plus read time."""
    return WANDER_NS * max(1.0, width_ns / _WANDER_OVER_NS) ** 2 + READ_NS


def noise_ns(records: Sequence[ClockBins]) -> float:
    """Maximum error of single stamps, ns: change of the packet spacing, in the bins with the least path jitter.

    Pairs are not rejected by spacing: that made fits worse, because under jitter an even spacing is coincidence.
    """
    changes = sorted(bin_.mismatch_ns for record in records for bin_ in record.bins if bin_.mismatch_ns is not None)
    return EXTREME * changes[len(changes) // CALM] if changes else 0.0


def _r_squared(points: Samples, line: Line) -> float | None:
    if len(points.fastest) < 2:
        return None
    x, y = points.fastest[:, 0], points.fastest[:, 1]
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - line[1] - line[0] * x) ** 2).sum())
    return float(np.clip(1.0 - left / total, 0.0, 1.0)) if total else None
