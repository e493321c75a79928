"""Best path between two GPUs, and peer access."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from .node import Device, NodeTopology, Vertex, fabric_of

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
