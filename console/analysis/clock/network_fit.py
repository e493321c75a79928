"""Robust least-squares fit of node offsets to all edges at one instant, and each edge's residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .samples import Bools, Floats, Ints

ROUNDS: Final = 20
#: Minimum residual scale, ns.
LEAST_SCALE_NS: Final = 500.0
#: A residual above DOUBTED scales loses weight; above CONTRADICTED scales and CONTRADICTED_NS the edge is contradicted.
DOUBTED: Final = 1.5
CONTRADICTED: Final = 6.0
CONTRADICTED_NS: Final = 5_000.0


@dataclass(frozen=True, slots=True)
class Mesh:
    """Edges between nodes 0 to `n` - 1: `far[i]` is ahead of `near[i]` by `offset[i]` ± `bound[i]` ns."""

    n: int
    near: Ints
    far: Ints
    offset: Floats
    bound: Floats

    def component(self, start: int) -> Bools:
        """Mask of the nodes reachable from `start`."""
        reached = np.zeros(self.n, dtype=np.bool_)
        reached[start] = True
        while True:
            one_end = reached[self.near] != reached[self.far]
            if not one_end.any():
                return reached
            reached[self.near[one_end]] = True
            reached[self.far[one_end]] = True


@dataclass(frozen=True, slots=True)
class Solution:
    """Offsets relative to the reference, ns (NaN if unreachable), and each edge's residual, ns."""

    offset: Floats
    residual: Floats  # edge offset minus fitted offset
    scale: float  # robust standard deviation of the residuals, ns

    @property
    def contradicted(self) -> Bools:
        """Mask of edges contradicted by the others; an edge in no loop never is."""
        limit = max(CONTRADICTED * self.scale, CONTRADICTED_NS)
        return np.abs(np.nan_to_num(self.residual)) > limit


def solve(mesh: Mesh, reference: int) -> Solution:
    """Robust weighted least squares: weights 1 / bound^2, reduced for large residuals."""
    reached = mesh.component(reference)
    used = reached[mesh.near]
    sub = Mesh(mesh.n, mesh.near[used], mesh.far[used], mesh.offset[used], mesh.bound[used])
    trust = 1.0 / np.maximum(sub.bound, 1.0) ** 2
    trust = trust / trust.max() if len(trust) else trust
    doubt = np.ones(len(trust))
    offset, scale = np.zeros(mesh.n), LEAST_SCALE_NS
    for _ in range(ROUNDS):
        offset = _least_squares(sub, trust * doubt, reference, offset)
        size = np.abs(_residual(sub, offset))
        scale = max(LEAST_SCALE_NS, 1.4826 * float(np.median(size))) if len(size) else LEAST_SCALE_NS
        before, doubt = doubt, 1.0 / np.maximum(1.0, size / (DOUBTED * scale)) ** 2
        if np.allclose(doubt, before, rtol=1e-6):
            break
    offset[~reached] = np.nan
    return Solution(offset, _residual(mesh, offset), scale)


def _residual(mesh: Mesh, offset: Floats) -> Floats:
    residual: Floats = mesh.offset - (offset[mesh.far] - offset[mesh.near])
    return residual


def _least_squares(mesh: Mesh, weight: Floats, reference: int, start: Floats) -> Floats:
    """Conjugate gradients on the graph's weighted Laplacian, with the reference held at 0 (Jacobi preconditioned)."""
    near, far = mesh.near, mesh.far
    diagonal = np.bincount(near, weight, mesh.n) + np.bincount(far, weight, mesh.n)
    free = diagonal > 0
    free[reference] = False
    inverse = np.divide(1.0, diagonal, out=np.zeros(mesh.n), where=free)

    def apply(x: Floats) -> Floats:
        flow = weight * (x[far] - x[near])
        return np.where(free, np.bincount(far, flow, mesh.n) - np.bincount(near, flow, mesh.n), 0.0)

    pull = weight * mesh.offset
    x = np.where(free, start, 0.0)
    left = np.where(free, np.bincount(far, pull, mesh.n) - np.bincount(near, pull, mesh.n), 0.0) - apply(x)
    step = direction = inverse * left
    power = float(left @ step)
    enough = 1e-20 * max(power, float((pull**2).sum()))
    for _ in range(4 * mesh.n + 20):
        if power <= enough:
            break
        along = apply(direction)
        length = power / float(direction @ along)
        x = x + length * direction
        left = left - length * along
        step = inverse * left
        before, power = power, float(left @ step)
        direction = step + (power / before) * direction
    return x


def bridges(n: int, near: Sequence[int], far: Sequence[int]) -> set[int]:
    """Indices of the edges that are in no loop (graph bridges)."""
    beside: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for edge, (a, b) in enumerate(zip(near, far, strict=True)):
        beside[a].append((b, edge))
        beside[b].append((a, edge))
    order, low, bridge_edges, count = [-1] * n, [0] * n, set(), 0
    for root in range(n):
        if order[root] >= 0:
            continue
        order[root] = low[root] = count
        count += 1
        trail = [(root, -1, iter(beside[root]))]
        while trail:
            node, came_by, rest = trail[-1]
            for other, edge in rest:
                if edge == came_by:
                    continue
                if order[other] < 0:
                    order[other] = low[other] = count
                    count += 1
                    trail.append((other, edge, iter(beside[other])))
                    break
                low[node] = min(low[node], order[other])
            else:
                trail.pop()
                if trail:
                    parent = trail[-1][0]
                    low[parent] = min(low[parent], low[node])
                    if low[node] > order[parent]:
                        bridge_edges.add(came_by)
    return bridge_edges
