"""One edge in one window: fitted line and its error bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...records import ClockBins
from ...records.clock import ProbeMethod, Stamps, WindowStatus
from .line_fit import Line, Region, Samples, best_line, region, samples

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


@dataclass(frozen=True, slots=True)
class EdgeWindow:
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


def edge_window(records: Sequence[ClockBins]) -> EdgeWindow:
    """Fit the window covered by `records`, which are of one edge, method and agent."""
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
