"""One edge in one window: its line, and how far that can be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...records import ClockBins
from ...records.clock import ProbeMethod, Stamps, WindowStatus
from .estimators import Line, best_line
from .feasible_region import Region, region
from .samples import Samples, samples

#: A window with fewer bins than this in one direction makes no line.
LEAST_BINS: Final = 10
#: How far a clock that runs evenly by all appearances bends within a window of 4 s, ns (of a wander of 2 us in 30 s); a
#: bend grows with the square of the time.
WANDER_NS: Final = 300.0
_WANDER_OVER_NS: Final = 4e9
#: How far a stamp of CLOCK_REALTIME is off once it is MONOTONIC_RAW: the bracket of the read of both (210 ns, median of
#: the best of five), at either end.
READ_NS: Final = 2 * 210.0
#: One bin of so many is calmer than what shows the noise of stamps; and of the thousands of stamps of a window the
#: extreme ones, which make the bound, are so many times as far off. (Synthetic stamps with a normal error of 0.85 us,
#: on a way of 2.5 us: 120 windows, no miss, without this 9; of 1 us: 1 miss, without this 23.)
CALM: Final = 10
EXTREME: Final = 3.0
#: From this share of replies on that were back before they can have left, and this many, stamps are not to be trusted.
#: (The kernel's own are early by some 0.4 us once in a long while.)
NONCAUSAL_SHARE: Final = 0.005
NONCAUSAL: Final = 3


@dataclass(frozen=True, slots=True)
class EdgeWindow:
    """How far the clock of `dst` is ahead of that of `src`, both MONOTONIC_RAW, over one window.

    The line is y0 + offset + slope * (t - x0) at an instant `t` of `src`. It and the region are None where the status
    is not `ok`, except that `noncausal` keeps the line, which then has no bound.
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
    r_squared: float | None = None  # nothing about accuracy: a biased path has 1.0
    min_rtt_ns: int | None = None
    sent: int = 0
    kept: int = 0
    noncausal: int = 0
    missed_pct: float = 0.0  # triples that the node was too busy to send

    @property
    def lost(self) -> int:
        return max(0, self.sent - self.kept - self.noncausal)

    def at(self, t: int) -> tuple[float, float, float]:
        """Least possible, best, and greatest possible offset beyond `y0` at an instant of `src`.

        Raises `ValueError` in a window without a bound.
        """
        if self.line is None or self.region is None:
            raise ValueError(f"the window of {self.src} to {self.dst} has no bound ({self.status})")
        x = float(t - self.x0)
        low, high = self.region.interval(x)
        slope, offset = self.line
        return low, min(max(offset + slope * x, low), high), high

    @property
    def bound_ns(self) -> float | None:
        """The error of the line at the middle of the window is at most this, if the clocks run evenly."""
        if self.region is None:
            return None
        low, best, high = self.at(self.x0)
        return max(high - best, best - low)

    @property
    def slope_bound(self) -> float | None:
        """The error of the slope is at most this, ns per ns."""
        if self.region is None or self.line is None:
            return None
        slopes = self.region.slopes
        return float(max(slopes[-1] - self.line[0], self.line[0] - slopes[0]))


def edge_window(records: Sequence[ClockBins]) -> EdgeWindow:
    """The line of one edge over the window that these records cover; they are of one edge, method and agent."""
    points = samples(records)
    counts = {
        "sent": sum(one.sent for record in records for one in record.bins),
        "kept": sum(max(0, one.got - one.noncausal) for record in records for one in record.bins),
        "noncausal": sum(one.noncausal for record in records for one in record.bins),
    }
    ticks = sum(record.ticks for record in records)
    missed_pct = 100.0 * sum(record.missed for record in records) / ticks if ticks else 0.0
    last = records[-1]
    status: WindowStatus = "ok"
    line = possible = repeat_ns = r_squared = None
    if points.bins < LEAST_BINS:
        status = "few" if counts["kept"] else "no_answer"
    else:
        possible = region(points.forward, points.backward, slack_ns(points.width_ns) + noise_ns(records))
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


def slack_ns(width_ns: int) -> float:
    """How far any point of a window of that width may be off: the clocks bend, and reading them takes time."""
    return WANDER_NS * max(1.0, width_ns / _WANDER_OVER_NS) ** 2 + READ_NS


def noise_ns(records: Sequence[ClockBins]) -> float:
    """How far single stamps are off by themselves, at most, ns: by how much two packets change their distance.

    Ways change it, too, stamps alone do in the calmest bins. Pairs are not left out for it: rejecting them was measured
    to make lines worse, because through jitter an even spacing is coincidence.
    """
    changes = sorted(one.mismatch_ns for record in records for one in record.bins if one.mismatch_ns is not None)
    return EXTREME * changes[len(changes) // CALM] if changes else 0.0


def _r_squared(points: Samples, line: Line) -> float | None:
    if len(points.fastest) < 2:
        return None
    x, y = points.fastest[:, 0], points.fastest[:, 1]
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - line[1] - line[0] * x) ** 2).sum())
    return float(np.clip(1.0 - left / total, 0.0, 1.0)) if total else None
