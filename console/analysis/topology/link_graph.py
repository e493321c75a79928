"""The graph of links between devices, bridges, switches, networks and fabrics, and its widest path."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from .bandwidth import Bandwidth


class Vertex(NamedTuple):
    """Vertex of the link graph; `node` is "" for shared networks and NVLink fabrics."""

    node: str
    kind: Literal["gpu", "nic", "switch", "cpu", "pci", "root", "numa", "network", "fabric", "unknown"]
    id: str


@dataclass(frozen=True, slots=True)
class LinkEdge:
    """One link. `width` in bytes/s: inf within a switch or CPU, None if unknown."""

    type: str
    width: float | None
    bandwidth: Bandwidth | None

    @property
    def known_width(self) -> float:
        """Width in bytes/s, 0 if unknown."""
        return self.width or 0.0


class LinkGraph:
    """An undirected graph without parallel edges."""

    def __init__(self, vertices: Iterable[Vertex] = ()) -> None:
        self._edges: dict[Vertex, dict[Vertex, LinkEdge]] = {vertex: {} for vertex in vertices}

    def __contains__(self, vertex: object) -> bool:
        return vertex in self._edges

    def __iter__(self) -> Iterator[Vertex]:
        return iter(self._edges)

    def neighbors(self, vertex: Vertex) -> Mapping[Vertex, LinkEdge]:
        """Vertices that are linked to this one, with the links."""
        return self._edges[vertex]

    def edge(self, near: Vertex, far: Vertex) -> LinkEdge | None:
        """The link between two vertices; None if there is none."""
        return self._edges.get(near, {}).get(far)

    def add_edge(self, near: Vertex, far: Vertex, edge: LinkEdge) -> None:
        """Add a link and its vertices; it replaces a previous one."""
        self._edges.setdefault(near, {})[far] = edge
        self._edges.setdefault(far, {})[near] = edge

    @classmethod
    def union(cls, graphs: Iterable[LinkGraph]) -> Self:
        """All vertices and links of these graphs; of a link that two graphs have, the later."""
        union = cls()
        for graph in graphs:
            for vertex, edges in graph._edges.items():
                union._edges.setdefault(vertex, {}).update(edges)
        return union

    def widest_path(self, start: Vertex, end: Vertex, blocked: Collection[Vertex] = ()) -> tuple[Vertex, ...] | None:
        """Path with the widest bottleneck, of those one with the fewest links; None if there is no path.

        Does not pass `blocked` vertices. A link of unknown width counts as 0.
        """
        bottleneck = self._bottleneck(start, end, blocked)
        if bottleneck is None:
            return None
        previous = {start: start}
        queue = deque([start])
        while end not in previous:
            vertex = queue.popleft()
            for neighbor, edge in sorted(self._edges[vertex].items(), key=lambda item: item[0]):  # deterministic
                if edge.known_width >= bottleneck and neighbor not in previous and _is_open(neighbor, end, blocked):
                    previous[neighbor] = vertex
                    queue.append(neighbor)
        path = [end]
        while path[-1] != start:
            path.append(previous[path[-1]])
        return tuple(reversed(path))

    def _bottleneck(self, start: Vertex, end: Vertex, blocked: Collection[Vertex]) -> float | None:
        """Width of the widest path: Dijkstra's algorithm with the minimum instead of the sum; None without a path."""
        heap, done = [(-float("inf"), start)], set()
        while heap:
            width, vertex = heapq.heappop(heap)
            if vertex == end:
                return -width
            if vertex in done:
                continue
            done.add(vertex)
            for neighbor, edge in self._edges[vertex].items():
                if neighbor not in done and _is_open(neighbor, end, blocked):
                    heapq.heappush(heap, (max(width, -edge.known_width), neighbor))
        return None


def _is_open(vertex: Vertex, end: Vertex, blocked: Collection[Vertex]) -> bool:
    return vertex == end or vertex not in blocked
