"""All edges against each other at one instant: robust least-squares offsets, tightest intervals, contradictory loops.

Each edge states low <= offset[far] - offset[near] <= high. The maximum offset of a node is the shortest path from the
reference, the minimum that of the reverse path (Bellman-Ford). A negative cycle proves that one of its edges is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from .pair_bounds import Bools, Floats, Ints

ROUNDS: Final = 20
#: Minimum residual scale, ns.
LEAST_SCALE_NS: Final = 500.0
#: Scales. A residual above this loses weight; above CONTRADICTED and CONTRADICTED_NS the edge is contradicted.
REDUCED_FROM: Final = 1.5
CONTRADICTED: Final = 6.0
CONTRADICTED_NS: Final = 5_000.0


class Mesh(msgspec.Struct, frozen=True):
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


class Solution(msgspec.Struct, frozen=True):
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
    reduction = np.ones(len(trust))
    offset, scale = np.zeros(mesh.n), LEAST_SCALE_NS
    for _ in range(ROUNDS):
        offset = _least_squares(sub, trust * reduction, reference, offset)
        size = np.abs(_residual(sub, offset))
        scale = max(LEAST_SCALE_NS, 1.4826 * float(np.median(size))) if len(size) else LEAST_SCALE_NS
        before, reduction = reduction, 1.0 / np.maximum(1.0, size / (REDUCED_FROM * scale)) ** 2
        if np.allclose(reduction, before, rtol=1e-6):
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


class Constraints(msgspec.Struct, frozen=True):
    """low <= offset[far] - offset[near] <= high for each edge, ns."""

    n: int
    near: Ints
    far: Ints
    low: Floats
    high: Floats

    def without(self, edges: set[int]) -> Constraints:
        """The constraints less the edges with these indices."""
        kept = np.array([edge for edge in range(len(self.near)) if edge not in edges], dtype=np.intp)
        return Constraints(self.n, self.near[kept], self.far[kept], self.low[kept], self.high[kept])


class Arcs(msgspec.Struct, frozen=True):
    """Directed lengths, sorted by head: offset[head] <= offset[tail] + length. `edge` is the index of the edge."""

    n: int
    tail: Ints
    head: Ints
    length: Floats
    edge: Ints


def arcs(given: Constraints) -> Arcs:
    """Both directions of every edge."""
    head = np.concatenate([given.far, given.near])
    order = np.argsort(head, kind="stable")
    number = np.arange(len(given.near))
    return Arcs(
        given.n,
        np.concatenate([given.near, given.far])[order],
        head[order],
        np.concatenate([given.high, -given.low])[order],
        np.concatenate([number, number])[order],
    )


def distances(ways: Arcs, start: int) -> Floats:
    """Maximum offset of each node relative to `start`, ns; infinite if unbounded. ValueError on a negative cycle."""
    row: Floats = _distances(ways, np.array([start]))[0]
    return row


def all_distances(ways: Arcs) -> Floats:
    """`distances` from every node: row i is from node i. For choosing a reference."""
    return _distances(ways, np.arange(ways.n))


def _distances(ways: Arcs, starts: Ints) -> Floats:
    distance = np.full((ways.n, len(starts)), np.inf)  # [node reached, start]: rows are gathered at once
    distance[starts, np.arange(len(starts))] = 0.0
    heads, first = np.unique(ways.head, return_index=True)
    for _ in range(ways.n + 1):
        if not len(heads):
            return distance.T
        best = np.minimum.reduceat(distance[ways.tail] + ways.length[:, None], first, axis=0)
        if not (best < distance[heads] - 1e-6).any():
            return distance.T
        distance[heads] = np.minimum(distance[heads], best)
    raise ValueError("the constraints contradict each other")


def intervals(given: Constraints, reference: int) -> tuple[Floats, Floats]:
    """Minimum and maximum offset of each node relative to the reference, ns; ValueError on a negative cycle."""
    forth = arcs(given)
    back = arcs(Constraints(given.n, given.far, given.near, given.low, given.high))
    return -distances(back, reference), distances(forth, reference)


def impossible_loop(given: Constraints) -> tuple[int, ...]:
    """Edges of one negative cycle; empty if the constraints are consistent."""
    ways = arcs(given)
    distance = np.zeros(ways.n)  # as from a node beside all others: finds every loop
    came_by = np.full(ways.n, -1, dtype=np.intp)
    last = -1
    for _ in range(ways.n + 1):
        candidate = distance[ways.tail] + ways.length
        better: Bools = candidate < distance[ways.head] - 1e-6
        if not better.any():
            return ()
        for arc in np.flatnonzero(better):
            if candidate[arc] < distance[ways.head[arc]] - 1e-6:
                distance[ways.head[arc]] = candidate[arc]
                came_by[ways.head[arc]] = arc
                last = int(ways.head[arc])
    return _loop_through(ways, came_by, last)


def _loop_through(ways: Arcs, came_by: Ints, node: int) -> tuple[int, ...]:
    for _ in range(ways.n):  # far enough back to be inside the loop
        node = int(ways.tail[came_by[node]])
    start, edges = node, []
    while True:
        arc = came_by[node]
        edges.append(int(ways.edge[arc]))
        node = int(ways.tail[arc])
        if node == start:
            return tuple(edges)
