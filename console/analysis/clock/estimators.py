"""Best line through a window's points; the feasible region bounds its error.

Median of three estimators: quantile regression over the fastest of each bin, middle of the widest strip between the two
clouds, least squares over the fastest exchanges. The median was within a factor of 2 of the best in every scenario.
"""

from __future__ import annotations

from statistics import median
from typing import Final

import numpy as np

from .feasible_region import MOST_SLOPE, Region
from .samples import Bools, Floats, Samples

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
    products = (design[:, None, :] * design[None, :, :]).reshape(9, -1)
    weights = masks.astype(np.float64)
    solution = np.zeros((len(masks), 3))
    for _ in range(ROUNDS):
        matrix = (weights @ products.T).reshape(-1, 3, 3)
        matrix[:, 0, 0] += 1e-12 * (1.0 + matrix[:, 0, 0])  # all points at one x: any slope will do
        solution = np.linalg.solve(matrix, ((weights * y) @ design.T)[:, :, None])[:, :, 0]
        outward = sign * (y - solution @ design)
        size = np.abs(outward)
        floor = np.maximum(1.0, 1e-3 * np.median(size, axis=1, keepdims=True))
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
