"""The best path between two GPUs, and whether one may touch the other's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from .node import Device, NodeTopology, Vertex, fabric_of

#: Traffic between two GPUs does not pass through a third one, nor through a card into another: they end it.
ENDS: Final = frozenset(("gpu", "nic"))
#: What leads out of a node.
OUTSIDE: Final = frozenset(("network", "fabric"))


@dataclass(frozen=True, slots=True)
class Route:
    """One way. `bytes_s` is what its narrowest link carries in one direction, None where no link of it is known.

    `is_bound`: a link on the way has an unknown bandwidth, so that `bytes_s` is the most it can be.
    """

    stops: tuple[Vertex, ...]
    bytes_s: float | None
    is_bound: bool
    narrowest: str  # what carries that: `PCIe 5 x16`

    @property
    def hops(self) -> int:
        return len(self.stops) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """Whether two GPUs may read and write each other's memory; None where nobody says."""

    allowed: bool | None
    why: str


def best_route(graph: Any, start: Vertex, end: Vertex, blocked: Collection[Vertex] = ()) -> Route | None:
    """The widest path, of those the one with the fewest hops; None where there is none. `blocked` is never passed.

    A link of unknown bandwidth counts as the narrowest of all: a path that is known is preferred to one that may be
    anything.
    """
    import networkx as nx  # as in topology.py

    if start == end or start not in graph or end not in graph:
        return None
    allowed = [vertex for vertex in graph if vertex not in blocked or vertex in (start, end)]
    open_ways = graph.subgraph(allowed)
    if not nx.has_path(open_ways, start, end):
        return None
    # The path between two vertices in a maximum spanning tree is a widest one: its bottleneck is the bound for all.
    weighted = nx.Graph()
    weighted.add_weighted_edges_from((one, other, _weight(data)) for one, other, data in open_ways.edges(data=True))
    tree = nx.maximum_spanning_tree(weighted)
    way = nx.shortest_path(tree, start, end)
    bottleneck = min(tree.edges[edge]["weight"] for edge in pairwise(way))
    wide = nx.Graph()
    edges = [(one, other) for one, other, weight in weighted.edges(data="weight") if weight >= bottleneck]
    wide.add_edges_from(sorted(edges, key=lambda edge: tuple(sorted(edge))))  # of equals always the same one
    return _route(graph, tuple(nx.shortest_path(wide, start, end)))


def between(nodes: Iterable[NodeTopology], start: Vertex, end: Vertex) -> Route | None:
    """The best path between two GPUs: within their node, or from one node to another over cards or a fabric."""
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
    known = [edge for edge in edges if edge["width"] is not None and edge["width"] != math.inf]
    narrowest = min(known, key=lambda edge: float(edge["width"]), default=None)
    return Route(
        stops,
        float(narrowest["width"]) if narrowest else None,
        any(edge["width"] is None for edge in edges),
        narrowest["bandwidth"].text if narrowest else "",
    )


# -- peer access -------------------------------------------------------------------------------------------------------

_WHY = {
    "chipset_not_supported": "the chipset between them does not support it",
    "gpu_not_supported": "one of the GPUs does not support it",
    "topology_not_supported": "the PCIe hierarchy between them does not support it",
    "disabled_by_regkey": "it is switched off in the driver's settings",
    "not_supported": "the driver does not support it between these two",
    "unknown": "the driver does not know",
}


def peer_access(topology: NodeTopology, one: Device, other: Device) -> Access:
    """Of two GPUs of one node, as the driver says it."""
    peer = topology.peer(one, other)
    if peer is None:
        return Access(None, "the driver was not asked, or did not answer")
    statuses = {"read": peer.read, "write": peer.write}
    refused = {name: status for name, status in statuses.items() if status not in (None, "ok")}
    if refused:
        split = next((device.label for device in (one, other) if device.info and device.info.mig_mode), None)
        reasons = {_WHY.get(str(status), str(status)) for status in refused.values()}
        why = f"no {' and no '.join(refused)}: {'; '.join(sorted(reasons))}"
        return Access(False, f"{why} ({split} is in MIG mode)" if split else why)
    if None in statuses.values():
        return Access(None, peer.unsupported.get("read") or peer.unsupported.get("write") or "the driver does not tell")
    over = "NVLink" if peer.nvlink == "ok" and topology.word(one.label, other.label).startswith("NV") else "PCIe"
    atomics = {"ok": "read, write and atomics", None: "read and write"}.get(peer.atomics, "read and write, no atomics")
    return Access(True, f"{atomics} over {over}")


def remote_access(one: Device, other: Device) -> Access:
    """Of two GPUs of different nodes: only a common NVLink fabric lets one map the other's memory."""
    fabrics = {fabric_of(device.info) for device in (one, other) if device.info}
    if len(fabrics) == 1 and None not in fabrics:
        return Access(True, "one NVLink fabric and clique")
    return Access(False, "different nodes without a common NVLink fabric; their cards can exchange data (RDMA)")
