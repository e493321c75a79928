"""What all edges together make certain: the tightest interval for each node, and proof where edges cannot all be true.

Each edge says low <= offset of far - offset of near <= high. Chains of such statements are shortest paths (Bellman and
Ford): the greatest offset that a node can have is the shortest way from the reference, the least that of the way back.
A loop whose lengths add up to less than zero has no solution at all: one of its edges is wrong, without statistics.
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
        kept = np.array([edge for edge in range(len(self.near)) if edge not in edges], dtype=np.intp)
        return Constraints(self.n, self.near[kept], self.far[kept], self.low[kept], self.high[kept])


@dataclass(frozen=True, slots=True)
class Arcs:
    """The same as directed lengths: offset[head] <= offset[tail] + length; sorted by head. `edge` is whose they are."""

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
    """The greatest offset of each node beyond that of `start`, ns; infinite where nothing bounds it.

    Raises `ValueError` where a loop makes the constraints impossible.
    """
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
    """The least and the greatest offset of each node, ns beyond the reference's; infinite where unbounded.

    Raises `ValueError` where the constraints contradict each other.
    """
    forth = arcs(given)
    back = arcs(Constraints(given.n, given.far, given.near, given.low, given.high))
    return -distances(back, reference), distances(forth, reference)


def impossible_loop(given: Constraints) -> tuple[int, ...]:
    """The edges of one loop that cannot all be true; empty where all can."""
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
