"""Feasible region of a window: every line that its stamps allow, which bounds the offset for any path asymmetry.

A probe cannot arrive before it was sent, so forward points lie above the true offset and backward points below it. Over
one window the drift is linear (`slack` covers wander), so the true line lies under all forward and above all backward
points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from .samples import Floats

#: Maximum drift between two healthy clocks (a crystal is within 50 ppm; NTP does not slew MONOTONIC_RAW).
MOST_SLOPE: Final = 200e-6


@dataclass(frozen=True, slots=True)
class Region:
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
