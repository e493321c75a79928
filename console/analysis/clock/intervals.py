"""Difference constraints of all edges: tightest offset interval per node, and negative cycles (inconsistent edges).

Each edge states low <= offset[far] - offset[near] <= high. The maximum offset of a node is the shortest path from the
reference, the minimum that of the reverse path (Bellman-Ford). A negative cycle proves that one of its edges is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .samples import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Constraints:
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


@dataclass(frozen=True, slots=True)
class Arcs:
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
    distance = np.full(ways.n, np.inf)
    distance[start] = 0.0
    heads, first = np.unique(ways.head, return_index=True)
    for _ in range(ways.n + 1):
        if not len(heads):
            return distance
        best = np.minimum.reduceat(distance[ways.tail] + ways.length, first)
        if not (best < distance[heads] - 1e-6).any():
            return distance
        distance[heads] = np.minimum(distance[heads], best)
    raise ValueError("the constraints contradict each other")


def all_distances(ways: Arcs) -> Floats:
    """`distances` from every node: row i is from node i. For choosing a reference."""
    distance = np.full((ways.n, ways.n), np.inf)  # [node reached, start]: rows are gathered at once
    np.fill_diagonal(distance, 0.0)
    heads, first = np.unique(ways.head, return_index=True)
    for _ in range(ways.n + 1):
        if not len(heads):
            return distance
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
