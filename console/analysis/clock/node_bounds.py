"""One window of all nodes: from edge lines to a clock offset, rate and bound per node."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from .network_fit import Constraints, Mesh, Solution, all_distances, arcs, bridges, impossible_loop, intervals, solve
from .pair_bounds import EdgeWindow, Floats, Ints

#: An edge is flagged if this many of the last OF_WINDOWS windows contradicted the fit.
FLAGGED: Final = 2
OF_WINDOWS: Final = 3
#: Windows after which an absent edge is dropped.
EXPIRED_AFTER: Final = 12

#: (probing node, responding node)
EdgeKey = tuple[str, str]


class NodeAt(msgspec.Struct, frozen=True):
    """One node's clock at the instant of the solution."""

    mono: int
    bound_ns: float
    rate: float  # relative to the reference, less 1
    rate_bound: float
    low: float  # interval around `mono`, ns
    high: float


class Settled(msgspec.Struct, frozen=True):
    """Solution of one window; nodes not connected to the reference by usable edges are not in `nodes`."""

    reference: str
    nodes: Mapping[str, NodeAt]
    residual_ns: Mapping[EdgeKey, float]  # only of edges in loops
    inconsistent: frozenset[EdgeKey]  # edges of negative cycles: proven
    contradicted: frozenset[EdgeKey]  # large residuals: statistical
    bridges: frozenset[EdgeKey]


class Flags(msgspec.Struct):
    """Flagged edges: contradicted in FLAGGED of the last OF_WINDOWS windows."""

    _past: dict[EdgeKey, tuple[int, deque[bool]]] = msgspec.field(default_factory=dict)  # last window, recent results
    _number: int = 0  # of windows

    def add(self, settled: Settled, edges: Sequence[EdgeKey]) -> frozenset[EdgeKey]:
        """Add a window; returns the flagged edges."""
        flagged = set(settled.inconsistent)
        self._number += 1
        for key in edges:
            _, past = self._past.get(key, (0, deque[bool](maxlen=OF_WINDOWS)))
            past.append(key in settled.contradicted)
            self._past[key] = (self._number, past)
            if sum(past) >= FLAGGED:
                flagged.add(key)
        oldest = self._number - EXPIRED_AFTER
        self._past = {key: entry for key, entry in self._past.items() if entry[0] > oldest}
        return frozenset(flagged)


class _Graph(msgspec.Struct, frozen=True):
    """Usable edges between numbered nodes at one instant; offsets are relative to the estimates `mono`."""

    names: list[str]
    edges: list[EdgeWindow]
    mono: list[int]
    near: Ints
    far: Ints
    low: Floats
    best: Floats
    high: Floats

    @property
    def constraints(self) -> Constraints:
        return Constraints(len(self.names), self.near, self.far, self.low, self.high)

    @property
    def mesh(self) -> Mesh:
        return Mesh(len(self.names), self.near, self.far, self.best, (self.high - self.low) / 2)


def settle(edges: Sequence[EdgeWindow], reference: str | None) -> Settled | None:
    """Solve all nodes' clocks at one instant of the reference; None without a usable edge.

    The reference is kept while it has a usable edge; else it is the node of the largest connected component with the
    smallest sum of bounds.
    """
    sound = [edge for edge in edges if edge.region is not None]
    if not sound:
        return None
    whole = _graph(_largest(sound, reference), reference)
    residual = np.abs(solve(whole.mesh, 0).residual)
    wrong = _impossible(whole.constraints, residual)
    inconsistent = frozenset(_key(whole.edges[edge]) for edge in wrong)
    if wrong:
        left = [edge for number, edge in enumerate(whole.edges) if number not in wrong]
        if not left:
            return None
        whole = _graph(_largest(left, reference), reference)
    index = whole.names.index(reference) if reference in whole.names else _central(whole.constraints)
    return _solved(whole, index, inconsistent)


def _solved(graph: _Graph, reference: int, inconsistent: frozenset[EdgeKey]) -> Settled:
    solution = solve(graph.mesh, reference)
    low, high = intervals(graph.constraints, reference)
    rates, rate_low, rate_high = _rates(graph, reference)
    crossing = bridges(len(graph.names), graph.near.tolist(), graph.far.tolist())
    nodes = {}
    for number, name in enumerate(graph.names):
        offset = min(max(float(solution.offset[number]), float(low[number])), float(high[number]))
        mono = graph.mono[number] + round(offset)
        nodes[name] = NodeAt(
            mono=mono, low=float(low[number]) - offset, high=float(high[number]) - offset,
            bound_ns=max(float(high[number]) - offset, offset - float(low[number])),
            rate=float(rates[number]),
            rate_bound=max(float(rate_high[number] - rates[number]), float(rates[number] - rate_low[number])),
        )  # fmt: skip
    residual = {
        _key(edge): float(solution.residual[number])
        for number, edge in enumerate(graph.edges)
        if number not in crossing
    }
    doubted = [number for number in np.flatnonzero(solution.contradicted).tolist() if _is_odd(graph, number, solution)]
    return Settled(
        reference=graph.names[reference], nodes=nodes, residual_ns=residual, inconsistent=inconsistent,
        contradicted=frozenset(_key(graph.edges[edge]) for edge in doubted),
        bridges=frozenset(_key(graph.edges[edge]) for edge in crossing),
    )  # fmt: skip


def _is_odd(graph: _Graph, number: int, solution: Solution) -> bool:
    """Whether a large residual counts: SSH edges are asymmetric by nature, so only beyond their bound."""
    if graph.edges[number].method == "udp":
        return True
    return abs(float(solution.residual[number])) > (float(graph.high[number]) - float(graph.low[number])) / 2


def _rates(graph: _Graph, reference: int) -> tuple[Floats, Floats, Floats]:
    """Rate, minimum and maximum rate of each node relative to the reference, ns per ns.

    Rates are added like offsets (the product of two is at most 1e-10).
    """
    regions = [edge.region for edge in graph.edges if edge.region is not None]
    slope = np.array([edge.line[0] for edge in graph.edges if edge.line is not None])
    low = np.array([float(region.slopes[0]) for region in regions])
    high = np.array([float(region.slopes[-1]) for region in regions])
    slope = np.clip(slope, low, high)
    n, scale = len(graph.names), 1e12  # ps per s, the magnitude that the fit's thresholds assume
    solution = solve(Mesh(n, graph.near, graph.far, slope * scale, (high - low) / 2 * scale), reference)
    given = Constraints(n, graph.near, graph.far, low * scale, high * scale)
    try:
        least, most = intervals(given, reference)
    except ValueError:  # clock wander: no single rate fits all edges of a node
        wide = np.full(n, 200e-6 * scale)
        least, most = solution.offset - wide, solution.offset + wide
    return np.clip(solution.offset, least, most) / scale, least / scale, most / scale


def _impossible(given: Constraints, residual: Floats) -> set[int]:
    """Edges to drop for consistency: of each negative cycle the one with the largest residual."""
    wrong: set[int] = set()
    numbers = np.arange(len(given.near))
    while True:
        kept = np.array([number for number in numbers if number not in wrong], dtype=np.intp)
        loop = impossible_loop(given.without(wrong))
        if not loop:
            return wrong
        wrong.add(max((int(kept[edge]) for edge in loop), key=lambda edge: float(residual[edge])))


def _central(given: Constraints) -> int:
    """Node with the smallest sum of bounds to all others."""
    distance = all_distances(arcs(given))
    return int(np.argmin((distance + distance.T).sum(axis=1)))


def _key(edge: EdgeWindow) -> EdgeKey:
    return edge.src, edge.dst


def _largest(edges: Sequence[EdgeWindow], reference: str | None) -> list[EdgeWindow]:
    """Edges of the connected component of the reference, else of the largest one."""
    part: dict[str, str] = {}

    def root(name: str) -> str:
        while part.setdefault(name, name) != name:
            part[name] = part[part[name]]
            name = part[name]
        return name

    for edge in edges:
        part[root(edge.src)] = root(edge.dst)
    if reference in part:
        chosen = root(str(reference))
    else:
        sizes: dict[str, int] = {}
        for name in sorted(part):
            sizes[root(name)] = sizes.get(root(name), 0) + 1
        chosen = max(sizes, key=lambda name: sizes[name])
    return [edge for edge in edges if root(edge.src) == chosen]


def _graph(edges: Sequence[EdgeWindow], reference: str | None) -> _Graph:
    """The edges evaluated at one instant: the middle of the window on the first node's clock."""
    beside: dict[str, list[tuple[str, EdgeWindow]]] = {}
    for edge in edges:
        beside.setdefault(edge.src, []).append((edge.dst, edge))
        beside.setdefault(edge.dst, []).append((edge.src, edge))
    start = reference if reference in beside else max(sorted(beside), key=lambda name: len(beside[name]))
    assert start is not None
    names, mono = [start], {start: _middle(start, [edge for _, edge in beside[start]])}
    for name in names:  # grows during iteration: breadth first
        for other, edge in beside[name]:
            if other not in mono:
                mono[other] = _across(edge, name, mono[name])
                names.append(other)
    number = {name: index for index, name in enumerate(names)}
    values = np.zeros((len(edges), 3))
    for row, edge in enumerate(edges):
        about = edge.y0 - (mono[edge.dst] - mono[edge.src])
        values[row] = [about + value for value in edge.at(mono[edge.src])]
    return _Graph(
        names, list(edges), [mono[name] for name in names],
        np.array([number[edge.src] for edge in edges], dtype=np.intp),
        np.array([number[edge.dst] for edge in edges], dtype=np.intp),
        values[:, 0], values[:, 1], values[:, 2],
    )  # fmt: skip


def _middle(name: str, edges: Sequence[EdgeWindow]) -> int:
    instants = sorted(edge.x0 if edge.src == name else edge.x0 + edge.y0 for edge in edges)
    return instants[len(instants) // 2]


def _across(edge: EdgeWindow, name: str, mono: int) -> int:
    """Clock of the other end when this end's clock is `mono`."""
    if edge.src == name:
        return mono + edge.y0 + round(edge.at(mono)[1])
    near = mono - edge.y0
    return near - round(edge.at(near)[1])
