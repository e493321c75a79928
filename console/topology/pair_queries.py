"""Peer access and best path of GPU pairs as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ..analysis.topology.classes import folded_pairs, labels_folded
from ..analysis.topology.link_graph import Vertex
from ..analysis.topology.node import Device, NodeTopology
from ..analysis.topology.routes import Route, between, peer_access, remote_access
from ..text import format
from ..text.nodeset_fold import natural
from ..text.sanitize import join_lines
from .snapshot import TopologySnapshot


def pair_lines(topology: NodeTopology) -> Iterator[tuple[str, str]]:
    """(`GPU4–GPU0-3`, text); pairs with the same text are folded."""
    by_text: dict[str, list[tuple[str, str]]] = {}
    for gpu, other in combinations(topology.gpus, 2):
        route = between([topology], gpu.vertex, other.vertex)
        text = f"{access_text(topology, gpu, other)}; {route_text(route)}"
        by_text.setdefault(text, []).append((gpu.label, other.label))
    for text, pairs in by_text.items():
        yield _pairs_text(pairs), text


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    """`GPU0-3,5 with each other` if these are all their pairs, else `GPU4–GPU0-3 GPU5–GPU6`."""
    labels = sorted({label for pair in pairs for label in pair}, key=natural)
    if len(labels) > 2 and len(pairs) == len(labels) * (len(labels) - 1) // 2:
        return f"{labels_folded(labels)} with each other"
    return " ".join(subject for subject, _ in folded_pairs(pairs))


def access_text(topology: NodeTopology, gpu: Device, other: Device) -> str:
    """`peer access: read, write and atomics over NVLink`."""
    access = peer_access(topology, gpu, other)
    word = {True: "", False: "no; ", None: "unknown; "}[access.allowed]
    return f"peer access: {word}{access.why}"


def route_text(route: Route | None) -> str:
    """`478 GB/s over NVSwitch (18 × 26.6 GB/s)`, with the shared intermediate vertices."""
    if route is None:
        return "no known path"
    inner = [stop for stop in route.stops[1:-1] if stop.kind not in ("root", "cpu")]
    stations = ["PCIe" if stop.kind == "pci" else vertex_text(stop) for stop in inner]
    over = [name for index, name in enumerate(stations) if index == 0 or stations[index - 1] != name]
    way = f" over {', '.join(over)}" if over else " direct"
    if route.bytes_s is None:
        return f"path{way}; bandwidth unknown"
    most = "at most " if route.is_bound else ""
    return f"{most}{format.bandwidth(route.bytes_s)}{way} ({route.narrowest})"


def vertex_text(vertex: Vertex) -> str:
    """Display name of a vertex."""
    if vertex.kind == "numa":
        return f"NUMA node {vertex.id}".strip()
    if vertex.kind in ("switch", "network"):
        return vertex.id
    if vertex.kind == "fabric":
        return "the NVLink fabric"
    return f"{vertex.node}:{vertex.id}" if vertex.node else vertex.id


def path_text(fleet: TopologySnapshot, start: Device, end: Device) -> str:
    """Best path between two GPUs of any nodes, one line per vertex, and peer access."""
    route = between(fleet.nodes.values(), start.vertex, end.vertex)
    lines = [f"{_place(start)} to {_place(end)}: {route_text(route)}"]
    lines += [f"  {line}" for line in path_lines(fleet, start, end)]
    if start.vertex.node == end.vertex.node:
        lines.append(access_text(fleet.nodes[start.vertex.node], start, end))
    else:
        access = remote_access(start, end)
        lines.append(f"peer access: {'' if access.allowed else 'no; '}{access.why}")
        lines += [] if access.allowed else [_network_text(fleet, start, end, route)]
    if route is not None and any(stop.kind == "network" for stop in route.stops):
        lines.append("assumes that all ports of one network can reach each other")
    return join_lines(lines)


def _network_text(fleet: TopologySnapshot, start: Device, end: Device, route: Route | None) -> str:
    """`network: RDMA over mlx5_0 and mlx5_3`, or what is missing for a path between the nodes."""
    nics_of = {node: fleet.nodes[node].nics for node in (start.vertex.node, end.vertex.node)}
    if without := [node for node, nics in nics_of.items() if not nics]:
        return f"network: no path; no NIC was reported by {' and '.join(without)}"
    if route is None:
        return "network: no path; no active port of both nodes is in one network"
    passed = [nic for nics in nics_of.values() for nic in nics if nic.vertex in route.stops]
    names = " and ".join(nic.vertex.id for nic in passed)
    if all(any(port.rdma for port in nic.ports) for nic in passed):
        return f"network: RDMA over {names}"
    return f"network: TCP over {names}; no RDMA port"


def path_lines(fleet: TopologySnapshot, start: Device, end: Device) -> list[str]:
    """Vertices of the best path, and between them, after a bar, the links."""
    route = between(fleet.nodes.values(), start.vertex, end.vertex)
    lines = []
    for index, stop in enumerate(route.stops if route else ()):
        lines.append(_stop(stop, start, end))
        if route is not None and index < route.hops:
            edge = _graph_edge(fleet, stop, route.stops[index + 1])
            lines += [f"  │ {edge}"] if edge else []
    return lines


def _place(gpu: Device) -> str:
    return f"{gpu.vertex.node} {gpu.label}"


def _stop(stop: Vertex, start: Device, end: Device) -> str:
    for device in (start, end):
        if device.vertex == stop:
            return _place(device)
    return vertex_text(stop)


def _graph_edge(fleet: TopologySnapshot, near: Vertex, far: Vertex) -> str:
    node = near.node or far.node
    edge = fleet.nodes[node].graph.edge(near, far)
    bandwidth = edge.bandwidth if edge else None
    if bandwidth is not None:
        return f"{bandwidth.text}, {format.bandwidth(bandwidth.bytes_s)} ({bandwidth.source})"
    return "unknown bandwidth" if edge and edge.width is None else ""


def find_gpu(fleet: TopologySnapshot, name: str) -> Device:
    """GPU named `node1:3` or `node1:gpu3`; LookupError with a hint if not found."""
    node, _, number = name.rpartition(":")
    topology = fleet.nodes.get(node)
    if not node:
        raise LookupError(f"{name!r} is not NODE:GPU; use e.g. node1:0")
    if topology is None:
        raise LookupError(f"{name!r}: no topology reported by node {node!r}; use NODE:GPU, e.g. node1:0")
    label = f"GPU{number.lower().removeprefix('gpu')}"
    gpus: Sequence[Device] = [gpu for gpu in topology.gpus if gpu.label == label]
    if not gpus:
        raise LookupError(f"{name!r}: {node} has {', '.join(gpu.label for gpu in topology.gpus) or 'no GPU'}")
    return gpus[0]
