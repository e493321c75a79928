"""The region of possible lines against brute force: every pair of constraints, every corner."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gconsole.analysis.clock.region import MOST_SLOPE, region
from gconsole.analysis.clock.samples import samples

from .synthetic import ASYM_FIXED, JITTER, QUEUE, VETH, Path, bins, measure


def brute_force(forward: np.ndarray, backward: np.ndarray, slack: float, x: float) -> tuple[float, float] | None:
    """The least and greatest b + a x over lines under all forward and above all backward points, |a| <= 200 ppm.

    Every corner of the polygon is where two constraints meet; nothing clever.
    """
    rows = [(px, 1.0, y + slack) for px, y in forward] + [(-px, -1.0, -(y - slack)) for px, y in backward]
    rows += [(1.0, 0.0, MOST_SLOPE), (-1.0, 0.0, MOST_SLOPE)]  # (of a, of b, at most)
    table = np.array(rows)
    values = []
    for one, other in itertools.combinations(table, 2):
        matrix = np.array([one[:2], other[:2]])
        if abs(np.linalg.det(matrix)) < 1e-12:
            continue
        corner = np.linalg.solve(matrix, np.array([one[2], other[2]]))
        if (table[:, :2] @ corner <= table[:, 2] + 1e-3).all():
            values.append(corner[1] + corner[0] * x)
    return (min(values), max(values)) if values else None


@pytest.mark.parametrize("path", [VETH, JITTER, QUEUE, ASYM_FIXED])
@pytest.mark.parametrize("x", [0.0, -2e9, 7e9])
def test_the_interval_is_what_brute_force_finds(path: Path, x: float) -> None:
    for seed in range(2):
        points = samples(bins(measure(path, seed, seconds=2.0)))
        found = region(points.forward, points.backward, 720.0)
        assert found is not None
        expected = brute_force(points.forward, points.backward, 720.0, x)
        assert expected is not None
        assert found.interval(x) == pytest.approx(expected, abs=1.0)


def test_both_find_nothing_where_stamps_are_not_causal() -> None:
    forward = np.array([[0.0, 10.0], [1e9, 10.0]])
    backward = np.array([[0.0, 20.0], [1e9, 20.0]])
    assert region(forward, backward, 4.0) is None
    assert brute_force(forward, backward, 4.0, 0.0) is None
    assert region(forward, backward, 6.0) is not None
