"""Best path between two GPUs, and peer access."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

import msgspec

from .link_graph import LinkGraph, Vertex
from .node import Device, NodeTopology, fabric_of

#: Kinds that traffic between two GPUs does not pass through.
ENDS: Final = frozenset(("gpu", "nic"))
#: Kinds that lead out of a node.
OUTSIDE: Final = frozenset(("network", "fabric"))


class Route(msgspec.Struct, frozen=True):
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


class Access(msgspec.Struct, frozen=True):
    """Whether two GPUs can access each other's memory; None if unknown."""

    allowed: bool | None
    why: str


def best_route(graph: LinkGraph, start: Vertex, end: Vertex, blocked: Collection[Vertex] = ()) -> Route | None:
    """Widest path, with the fewest hops among those; None if unreachable. `blocked` vertices are not passed.

    A link of unknown bandwidth counts as the narrowest, so known paths are preferred.
    """
    if start == end or start not in graph or end not in graph:
        return None
    stops = graph.widest_path(start, end, blocked)
    if stops is None:
        return None
    edges = [edge for near, far in pairwise(stops) if (edge := graph.edge(near, far)) is not None]
    limited = [edge for edge in edges if edge.width is not None and edge.width != math.inf]
    narrowest = min(limited, key=lambda edge: edge.known_width, default=None)
    return Route(
        stops,
        narrowest.width if narrowest else None,
        any(edge.width is None for edge in edges),
        narrowest.bandwidth.text if narrowest and narrowest.bandwidth else "",
    )


def between(nodes: Iterable[NodeTopology], start: Vertex, end: Vertex) -> Route | None:
    """Best path between two GPUs, within a node or between nodes over NICs or a fabric."""
    graphs = [topology.graph for topology in nodes if topology.node in (start.node, end.node)]
    graph = graphs[0] if len(graphs) == 1 else LinkGraph.union(graphs)
    not_passed = ENDS | OUTSIDE if start.node == end.node else {"gpu"}
    return best_route(graph, start, end, {vertex for vertex in graph if vertex.kind in not_passed})


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
    return Access(False, "different nodes without a common NVLink fabric")
