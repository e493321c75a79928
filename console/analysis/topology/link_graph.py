"""The graph of links between devices, bridges, switches, networks and fabrics: bandwidths and the widest path."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Self

import msgspec

from ...records import Link, Nic
from ...records.metrics import PCIE_LANE_BYTES_S
from ...text.format import bandwidth, port_speed


class Vertex(NamedTuple):
    """Vertex of the link graph; `node` is "" for shared networks and NVLink fabrics."""

    node: str
    kind: Literal["gpu", "nic", "switch", "cpu", "pci", "root", "numa", "network", "fabric", "unknown"]
    id: str


class LinkEdge(msgspec.Struct, frozen=True):
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


#: driver: reported for the link; nominal: by generation; port: negotiated rate of the port.
Source = Literal["driver", "nominal", "port"]

#: One NVLink, one direction, bytes/s, per generation (NVIDIA's product briefs: P100, V100, A100, H100, B200).
NVLINK_BYTES_S: Final[dict[int, float]] = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}


class Bandwidth(msgspec.Struct, frozen=True):
    """Bytes/s in one direction; `text` is the composition (`18 × 26.6 GB/s`, `PCIe 5 x16`)."""

    bytes_s: float
    source: Source
    text: str


def of_nvlinks(edges: Sequence[Link]) -> Bandwidth | None:
    """Sum over all active NVLinks of these edges; None if none is up, or a speed is unknown."""
    edges = [edge for edge in edges if edge.up]
    count = sum(len(edge.up) for edge in edges)
    if edges and all(edge.speed_bytes_s for edge in edges):
        total = sum(len(edge.up) * (edge.speed_bytes_s or 0.0) for edge in edges)
        return Bandwidth(total, "driver", _times(count, total / count))
    if not edges or not all(edge.version in NVLINK_BYTES_S for edge in edges):
        return None
    total = sum(len(edge.up) * NVLINK_BYTES_S[edge.version or 0] for edge in edges)
    return Bandwidth(total, "nominal", f"{_times(count, total / count)} nominal")


def of_xgmi(edge: Link) -> Bandwidth | None:
    """Bandwidth of xGMI between two GPUs; None if the driver does not report it."""
    if not edge.speed_bytes_s:
        return None
    return Bandwidth(edge.speed_bytes_s, "driver", bandwidth(edge.speed_bytes_s))


def of_pcie(gen: int | None, width: int | None) -> Bandwidth | None:
    """PCIe link by generation and lanes."""
    lane = PCIE_LANE_BYTES_S.get(gen or 0)
    return Bandwidth(lane * width, "nominal", f"PCIe {gen} x{width}") if lane and width else None


def own_link(link: Link) -> Bandwidth | None:
    """A device's own PCIe link; for GPUs at the maximum generation, because an idle GPU lowers it."""
    gen = (link.gen_max or link.gen) if link.a.kind == "gpu" else (link.gen or link.gen_max)
    return of_pcie(gen, link.width or link.width_max)


def uplink(link: Link) -> Bandwidth | None:
    """Narrowest link between a device's own link and its root port, possibly shared."""
    return of_pcie(link.uplink_gen, link.uplink_width)


def of_port(nic: Nic) -> Bandwidth | None:
    """Negotiated rate of a network port."""
    if not nic.rate_bytes_s:
        return None
    return Bandwidth(nic.rate_bytes_s, "port", port_speed(nic.rate_bytes_s))


def _times(count: int, each: float) -> str:
    return f"{count} × {bandwidth(each)}" if count > 1 else bandwidth(each)
