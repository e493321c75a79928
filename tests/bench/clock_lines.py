"""Accuracy and CPU cost of clock lines from synthetic timestamps, compared with the minimum-RTT exchange."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from gconsole.analysis.clock.network_fit import Constraints, Mesh, intervals, solve
from gconsole.analysis.clock.pair_bounds import edge_window
from tests.clocks.evaluation import evaluate_windows, median_of
from tests.clocks.synthetic import JITTER, SCENARIOS, bins, regular_edges
from tests.clocks.synthetic import measure as probe

from .result import Outcome, Row
from .result import middle as with_range

#: Name, interval of triples (us), the required ratio.
PATHS = (
    ("veth m", 800, 100.0), ("veth m", 5_000, None), ("jitter m", 800, 20.0), ("jitter m", 5_000, None),
    ("jitter and burners m", 800, 20.0), ("queue m", 800, 25.0), ("jitter u", 800, 5.0), ("queue u", 800, 5.0),
    ("asymmetric m", 800, None), ("asymmetric jitter m", 800, None),
)  # fmt: skip
NODES, RUNS = 512, 5
SOLVE_GOAL_S = 0.5


def measure_paths(count: int) -> list[Row]:
    """Error, bound and ratio of each path, 20 ppm apart."""
    rows = []
    for name, cadence_us, least in PATHS:
        checked = evaluate_windows(SCENARIOS[name], count, cadence_us=cadence_us)
        ours, peer = median_of(checked, "edge") / 1000, median_of(checked, "peer_edge") / 1000
        covered = sum(window.is_covered is True for window in checked)
        bound = median(window.bound or 0.0 for window in checked) / 1000
        goal = "" if least is None else f"≤ 1/{least:.0f} of the peer, all covered"
        met = None if least is None else peer / ours >= least and covered == len(checked)
        rows.append(
            Row(
                f"line of {name}, a triple each {cadence_us} µs",
                f"{ours:.3f} µs error, ±{bound:.2f} bound, {covered}/{len(checked)} covered", goal, met,
                f"least round trip {peer:.1f} µs", ours / peer,
            )
        )  # fmt: skip
    return rows


def solved(count: int, seed: int) -> tuple[float, float]:
    """Seconds for the robust solution of a mesh, and for the guaranteed interval of each node."""
    rng = np.random.default_rng(seed)
    edges = np.array(regular_edges(count, seed))
    truth = rng.normal(0.0, 1e6, count)
    offset = truth[edges[:, 1]] - truth[edges[:, 0]] + rng.normal(0.0, 1000.0, len(edges))
    bad = rng.random(len(edges)) < 0.05
    offset[bad] += rng.choice([-1, 1], bad.sum()) * rng.uniform(30, 150, bad.sum()) * 1000.0
    bound = np.full(len(edges), 200_000.0)
    began = time.perf_counter()
    solve(Mesh(count, edges[:, 0], edges[:, 1], offset, bound), 0)
    middle_s = time.perf_counter()
    intervals(Constraints(count, edges[:, 0], edges[:, 1], offset - bound, offset + bound), 0)
    return middle_s - began, time.perf_counter() - middle_s


def measure(quick: bool) -> Outcome:
    count, runs, nodes = (3, 2, 64) if quick else (12, RUNS, NODES)
    timed = [solved(nodes, seed) for seed in range(runs)]
    records = bins(probe(JITTER, 0))
    began = time.process_time()
    for _ in range(50):
        edge_window(records)
    edge_ms = (time.process_time() - began) / 50 * 1000
    solve_s, certain_s = [timing[0] for timing in timed], [timing[1] for timing in timed]
    return Outcome(
        [
            *measure_paths(count),
            Row(
                f"mesh of {nodes} nodes, 6 peers each, 5 % wrong edges: the solution",
                with_range(solve_s, "s", 3),
                f"< {SOLVE_GOAL_S} s",
                max(solve_s) < SOLVE_GOAL_S,
            ),
            Row("the same: guaranteed intervals of all nodes", with_range(certain_s, "s", 4)),
            Row("one edge, one window of 4 s at 5 ms", f"{edge_ms:.2f} ms CPU"),
        ],
        [
            "seeded synthetic stamps, 4 s windows, clocks 20 ppm apart; error is the largest within the window, median"
            f" of {count} windows; m: user space sends, the kernel receives; u: user space only",
            "peer: the offset of the minimum-RTT exchange of the same stamps, as a constant",
            "covered: the truth is within the bound at both ends and in the middle of the window",
        ],
    )
