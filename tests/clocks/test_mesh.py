"""Consistency of all edges of a mesh: simulated meshes with wrong edges, and guaranteed intervals."""

from __future__ import annotations

import numpy as np
import pytest

from gconsole.analysis.clock.network_fit import (
    Constraints,
    Mesh,
    all_distances,
    arcs,
    bridges,
    impossible_loop,
    intervals,
    solve,
)

from .synthetic import regular_edges

SIGMA = 1_000.0  # ns
WIDE = 200 * SIGMA


def simulated_mesh(count: int, seed: int, bad_share: float) -> tuple[Mesh, np.ndarray, np.ndarray]:
    """A mesh, the true offsets, and which edges are wrong by 30 to 150 sigma."""
    rng = np.random.default_rng(seed)
    edges = np.array(regular_edges(count, seed))
    truth = rng.normal(0.0, 1e6, count)
    offset = truth[edges[:, 1]] - truth[edges[:, 0]] + rng.normal(0.0, SIGMA, len(edges))
    bad = rng.random(len(edges)) < bad_share
    offset[bad] += rng.choice([-1, 1], bad.sum()) * rng.uniform(30, 150, bad.sum()) * SIGMA
    mesh = Mesh(count, edges[:, 0], edges[:, 1], offset, np.full(len(edges), WIDE))
    return mesh, truth - truth[0], bad


def pair_rms(error: np.ndarray) -> float:
    apart = error[:, None] - error[None, :]
    return float(np.sqrt((apart**2).sum() / (len(error) * (len(error) - 1))))


def test_mesh_of_64_tolerates_and_detects_five_percent_bad_edges() -> None:
    errors, detected_shares, false_shares = [], [], []
    for seed in range(10):
        mesh, truth, bad = simulated_mesh(64, seed, 0.05)
        solution = solve(mesh, 0)
        errors.append(pair_rms(solution.offset - truth) / SIGMA)
        detected_shares.append((solution.contradicted & bad).sum() / max(1, bad.sum()))
        false_shares.append((solution.contradicted & ~bad).sum() / (~bad).sum())
    assert np.median(errors) <= 1.2
    assert np.mean(detected_shares) >= 0.95
    assert np.mean(false_shares) <= 0.01


@pytest.mark.parametrize("count", [2, 5, 64, 256])
def test_true_offset_is_within_every_node_interval(count: int) -> None:
    mesh, truth, _ = simulated_mesh(count, 3, 0.05)
    low, high = intervals(Constraints(count, mesh.near, mesh.far, mesh.offset - WIDE, mesh.offset + WIDE), 0)
    assert ((low <= truth) & (truth <= high)).all()


def test_unreachable_nodes_have_no_offset() -> None:
    edge = np.array([0]), np.array([1])
    solution = solve(Mesh(3, *edge, np.array([5.0]), np.array([1.0])), 0)
    assert solution.offset[1] == pytest.approx(5.0)
    assert np.isnan(solution.offset[2])
    low, high = intervals(Constraints(3, *edge, np.array([4.0]), np.array([6.0])), 0)
    assert (low[2], high[2]) == (-np.inf, np.inf)


def test_solution_matches_dense_least_squares() -> None:
    mesh, _, _ = simulated_mesh(16, 4, 0.0)
    design = np.zeros((len(mesh.near), 16))
    design[np.arange(len(mesh.near)), mesh.far] = 1.0
    design[np.arange(len(mesh.near)), mesh.near] = -1.0
    dense, *_ = np.linalg.lstsq(design[:, 1:], mesh.offset, rcond=None)
    # Without residuals no edge is an outlier.
    consistent = Mesh(16, mesh.near, mesh.far, design[:, 1:] @ dense, mesh.bound)
    assert solve(consistent, 0).offset[1:] == pytest.approx(dense, abs=1e-3)


def test_contradictory_loop_is_identified_by_its_edges() -> None:
    near, far = np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3])
    low = np.array([9.0, 9.0, 9.0, 0.0])  # three forward steps cannot end at the start
    constraints = Constraints(4, near, far, low, low + 2)
    assert set(impossible_loop(constraints)) == {0, 1, 2}
    with pytest.raises(ValueError, match="contradict"):
        intervals(constraints, 0)
    assert impossible_loop(constraints.without({1})) == ()


def test_all_pairs_distances_match_single_source_intervals() -> None:
    mesh, _, _ = simulated_mesh(20, 5, 0.0)
    constraint_arcs = arcs(Constraints(20, mesh.near, mesh.far, mesh.offset - WIDE, mesh.offset + WIDE))
    from_all = all_distances(constraint_arcs)
    assert np.isfinite(from_all).all()
    low, high = intervals(Constraints(20, mesh.near, mesh.far, mesh.offset - WIDE, mesh.offset + WIDE), 7)
    assert from_all[7] == pytest.approx(high)
    assert -from_all[:, 7] == pytest.approx(low)


def test_bridge_edges_are_found() -> None:
    assert bridges(6, [0, 1, 2, 2, 3, 4], [1, 2, 0, 3, 4, 5]) == {3, 4, 5}
    assert bridges(2, [0, 0], [1, 1]) == set()
