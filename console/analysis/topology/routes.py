"""Bandwidth of links in one direction, and routes between the devices of a node."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from ...records import Link, Nic
from ...text.format import bandwidth, port_speed
from .node import Device, NodeTopology, Vertex, fabric_of

#: driver: reported for the link; nominal: by generation; port: negotiated rate of the port.
Source = Literal["driver", "nominal", "port"]

#: One NVLink, one direction, bytes/s, per generation (NVIDIA's product briefs: P100, V100, A100, H100, B200).
NVLINK_BYTES_S: Final[dict[int, float]] = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
#: One lane, one direction, bytes/s, per generation: transfers/s × encoding (8b/10b, 128b/130b, 242/256 flit) / 8 bits.
#: Packet headers take another few percent.
PCIE_LANE_BYTES_S: Final[dict[int, float]] = {
    1: 2.5e9 * 8 / 10 / 8, 2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bandwidth:
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


#: Kinds that traffic between two GPUs does not pass through.
ENDS: Final = frozenset(("gpu", "nic"))
#: Kinds that lead out of a node.
OUTSIDE: Final = frozenset(("network", "fabric"))


@dataclass(frozen=True, slots=True)
class Route:
    """One path; `bytes_s` is its bottleneck in one direction, None if no link is known.

    `is_bound`: a link has an unknown bandwidth, so `bytes_s` is an upper bound.
    """

    stops: tuple[Vertex, ...]
    bytes_s: float | None
    is_bound: bool
    narrowest: str  # bottleneck: `PCIe 5 x16`

    @property
    def hops(self) -> int:
        """Number of links."""
        return len(self.stops) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """Whether two GPUs can access each other's memory; None if unknown."""

    allowed: bool | None
    why: str


def best_route(graph: Any, start: Vertex, end: Vertex, blocked: Collection[Vertex] = ()) -> Route | None:
    """Widest path, with the fewest hops among those; None if unreachable. `blocked` vertices are not passed.

    A link of unknown bandwidth counts as the narrowest, so known paths are preferred.
    """
    import networkx as nx  # lazy: the import takes 75 ms

    if start == end or start not in graph or end not in graph:
        return None
    allowed = [vertex for vertex in graph if vertex not in blocked or vertex in (start, end)]
    open_ways = graph.subgraph(allowed)
    if not nx.has_path(open_ways, start, end):
        return None
    # A path in a maximum spanning tree is a widest path.
    weighted = nx.Graph()
    weighted.add_weighted_edges_from((near, far, _weight(data)) for near, far, data in open_ways.edges(data=True))
    tree = nx.maximum_spanning_tree(weighted)
    way = nx.shortest_path(tree, start, end)
    bottleneck = min(tree.edges[edge]["weight"] for edge in pairwise(way))
    wide = nx.Graph()
    edges = [(near, far) for near, far, weight in weighted.edges(data="weight") if weight >= bottleneck]
    wide.add_edges_from(sorted(edges, key=lambda edge: tuple(sorted(edge))))  # deterministic
    return _route(graph, tuple(nx.shortest_path(wide, start, end)))


def between(nodes: Iterable[NodeTopology], start: Vertex, end: Vertex) -> Route | None:
    """Best path between two GPUs, within a node or between nodes over NICs or a fabric."""
    import networkx as nx

    mine = [topology for topology in nodes if topology.node in (start.node, end.node)]
    if start.node == end.node:
        graph = mine[0].graph if mine else nx.Graph()
        return best_route(graph, start, end, [vertex for vertex in graph if vertex.kind in ENDS | OUTSIDE])
    graph = nx.compose_all([topology.graph for topology in mine]) if mine else nx.Graph()
    return best_route(graph, start, end, [vertex for vertex in graph if vertex.kind == "gpu"])


def _weight(data: dict[str, Any]) -> float:
    return 0.0 if data["width"] is None else float(data["width"])


def _route(graph: Any, stops: tuple[Vertex, ...]) -> Route:
    edges = [graph.edges[edge] for edge in pairwise(stops)]
    limited = [edge for edge in edges if edge["width"] is not None and edge["width"] != math.inf]
    narrowest = min(limited, key=lambda edge: float(edge["width"]), default=None)
    return Route(
        stops,
        float(narrowest["width"]) if narrowest else None,
        any(edge["width"] is None for edge in edges),
        narrowest["bandwidth"].text if narrowest else "",
    )


# -- peer access -------------------------------------------------------------------------------------------------------

_WHY = {
    "chipset_not_supported": "not supported by the chipset",
    "gpu_not_supported": "not supported by one of the GPUs",
    "topology_not_supported": "not supported by the PCIe topology",
    "disabled_by_regkey": "disabled in the driver settings",
    "not_supported": "not supported by the driver for this pair",
    "unknown": "unknown to the driver",
}


def peer_access(topology: NodeTopology, gpu: Device, other: Device) -> Access:
    """Peer access of two GPUs of one node, as reported by the driver."""
    peer = topology.peer(gpu, other)
    if peer is None:
        return Access(None, "not reported by the driver")
    statuses = {"read": peer.read, "write": peer.write}
    refused = {name: status for name, status in statuses.items() if status not in (None, "ok")}
    if refused:
        split = next((device.label for device in (gpu, other) if device.info and device.info.mig_mode), None)
        reasons = {_WHY.get(str(status), str(status)) for status in refused.values()}
        why = f"no {' and no '.join(refused)}: {'; '.join(sorted(reasons))}"
        return Access(False, f"{why} ({split} is in MIG mode)" if split else why)
    if None in statuses.values():
        return Access(
            None, peer.unsupported.get("read") or peer.unsupported.get("write") or "not reported by the driver"
        )
    over = "NVLink" if peer.nvlink == "ok" and topology.word(gpu.label, other.label).startswith("NV") else "PCIe"
    atomics = {"ok": "read, write and atomics", None: "read and write"}.get(peer.atomics, "read and write, no atomics")
    return Access(True, f"{atomics} over {over}")


def remote_access(gpu: Device, other: Device) -> Access:
    """Peer access of two GPUs of different nodes: only over a common NVLink fabric."""
    fabrics = {fabric_of(device.info) for device in (gpu, other) if device.info}
    if len(fabrics) == 1 and None not in fabrics:
        return Access(True, "one NVLink fabric and clique")
    return Access(False, "different nodes without a common NVLink fabric; use RDMA over their NICs")
