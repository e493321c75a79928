"""The region of possible lines compared with brute force: every pair of constraints, every corner."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from gconsole.analysis.clock.pair_bounds import MOST_SLOPE, ROUNDS, TAU, quantile_lines, region, samples

from .synthetic import ASYM_FIXED, JITTER, QUEUE, VETH, Path, bins, measure


def brute_force(forward: np.ndarray, backward: np.ndarray, slack: float, x: float) -> tuple[float, float] | None:
    """The minimum and maximum of b + a x over lines under all forward and above all backward points, |a| <= 200 ppm.

    Every corner of the polygon is the intersection of two constraints; all pairs are tried.
    """
    rows = [(px, 1.0, y + slack) for px, y in forward] + [(-px, -1.0, -(y - slack)) for px, y in backward]
    rows += [(1.0, 0.0, MOST_SLOPE), (-1.0, 0.0, MOST_SLOPE)]  # (coefficient of a, of b, upper limit)
    table = np.array(rows)
    values = []
    for first, second in itertools.combinations(table, 2):
        matrix = np.array([first[:2], second[:2]])
        if abs(np.linalg.det(matrix)) < 1e-12:
            continue
        corner = np.linalg.solve(matrix, np.array([first[2], second[2]]))
        if (table[:, :2] @ corner <= table[:, 2] + 1e-3).all():
            values.append(corner[1] + corner[0] * x)
    return (min(values), max(values)) if values else None


@pytest.mark.parametrize("path", [VETH, JITTER, QUEUE, ASYM_FIXED])
@pytest.mark.parametrize("x", [0.0, -2e9, 7e9])
def test_interval_matches_brute_force(path: Path, x: float) -> None:
    for seed in range(2):
        points = samples(bins(measure(path, seed, seconds=2.0)))
        polygon = region(points.forward, points.backward, 720.0)
        assert polygon is not None
        expected = brute_force(points.forward, points.backward, 720.0, x)
        assert expected is not None
        assert polygon.interval(x) == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize("cadence_us", [800, 5_000])
@pytest.mark.parametrize("path", [VETH, JITTER, QUEUE, ASYM_FIXED])
def test_binning_only_widens_the_interval_of_the_raw_stamps(path: Path, cadence_us: int) -> None:
    """At most by the drift between two clocks within a bin, at the maximum slope: 20 us."""
    stamps = measure(path, 3, cadence_us=cadence_us)
    points = samples(bins(stamps))
    base = stamps.far.reads - stamps.near.reads

    def raw(instants: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        return np.stack([(instants - points.x0).astype(float), (ahead - points.y0).astype(float)], axis=1)[stamps.got]

    forward, backward = raw(stamps.t1, stamps.t2 - stamps.t1), raw(stamps.t4, stamps.t3 - stamps.t4)
    unbinned, binned = region(forward, backward, 720.0), region(points.forward, points.backward, 720.0)
    assert unbinned is not None
    assert binned is not None
    truth = float(stamps.ahead(np.array([points.x0]))[0]) + base - points.y0
    (low, high), (least, most) = unbinned.interval(0.0), binned.interval(0.0)
    assert least - 1.0 <= low <= truth <= high <= most + 1.0
    assert (low - least) + (most - high) <= 20_000


def plain_quantile_line(points: list[tuple[float, float, int]]) -> tuple[float, float]:
    """(slope, offset) of (x ns, y ns, +1 forward or -1 backward): the same weights and rounds, in plain Python."""
    rows = [((x / 1e9, float(sign > 0), float(sign < 0)), y, sign) for x, y, sign in points]
    weights = [1.0] * len(rows)
    unknown = [0.0, 0.0, 0.0]
    for _ in range(ROUNDS):
        matrix = [[sum(w * row[i] * row[j] for w, (row, _, _) in zip(weights, rows, strict=True)) for j in range(3)]
                  for i in range(3)]  # fmt: skip
        right = [sum(w * row[i] * y for w, (row, y, _) in zip(weights, rows, strict=True)) for i in range(3)]
        matrix[0][0] += 1e-12 * (1.0 + matrix[0][0])
        unknown = solve_linear(matrix, right)
        residuals = [
            sign * (y - sum(u * coefficient for u, coefficient in zip(unknown, row, strict=True)))
            for row, y, sign in rows
        ]
        sizes = [abs(residual) for residual in residuals]
        floor = max(1.0, 1e-3 * statistics.median(sizes))
        weights = [
            (TAU if residual > 0 else 1 - TAU) / max(size, floor)
            for residual, size in zip(residuals, sizes, strict=True)
        ]
    return unknown[0] / 1e9, (unknown[1] + unknown[2]) / 2


def solve_linear(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Three linear equations, by elimination with pivoting."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(3):
        rows[column:] = sorted(rows[column:], key=lambda row: -abs(row[column]))
        for below in range(column + 1, 3):
            share = rows[below][column] / rows[column][column]
            rows[below] = [value - share * pivot for value, pivot in zip(rows[below], rows[column], strict=True)]
    solution = [0.0, 0.0, 0.0]
    for row in (2, 1, 0):
        solution[row] = (rows[row][3] - sum(rows[row][i] * solution[i] for i in range(row + 1, 3))) / rows[row][row]
    return solution


@pytest.mark.parametrize("path", [VETH, JITTER, QUEUE, ASYM_FIXED])
def test_quantile_line_matches_a_plain_python_implementation(path: Path) -> None:
    for seed in range(3):
        points = samples(bins(measure(path, seed)))
        count = len(points.forward) + len(points.backward)
        [(slope, offset)] = quantile_lines(points.forward, points.backward, np.ones((1, count), dtype=np.bool_))
        plain = [(x, y, 1) for x, y in points.forward.tolist()] + [(x, y, -1) for x, y in points.backward.tolist()]
        own_slope, own_offset = plain_quantile_line(plain)
        for x in (-2e9, 0.0, 2e9):
            assert offset + slope * x == pytest.approx(own_offset + own_slope * x, abs=10.0)


def test_noncausal_stamps_have_no_region_in_either_implementation() -> None:
    forward = np.array([[0.0, 10.0], [1e9, 10.0]])
    backward = np.array([[0.0, 20.0], [1e9, 20.0]])
    assert region(forward, backward, 4.0) is None
    assert brute_force(forward, backward, 4.0, 0.0) is None
    assert region(forward, backward, 6.0) is not None
