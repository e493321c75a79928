"""What any two GPUs can do together: peer access, and the best path with what it carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ..analysis.topology.classes import folded_pairs, labels_folded
from ..analysis.topology.node import Device, NodeTopology, Vertex
from ..analysis.topology.routes import Route, between, peer_access, remote_access
from ..text import format
from ..text.nodeset_fold import natural
from ..text.sanitize import printable
from .snapshot import TopologySnapshot


def pair_lines(topology: NodeTopology) -> Iterator[tuple[str, str]]:
    """(`GPU4–GPU0-3`, what holds for them): pairs for which the same holds are told together."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one, other in combinations(topology.gpus, 2):
        route = between([topology], one.vertex, other.vertex)
        said = f"{access_text(topology, one, other)}; {route_text(route)}"
        found.setdefault(said, []).append((one.label, other.label))
    for said, pairs in found.items():
        yield _pairs_text(pairs), said


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    """`GPU0-3,5 with each other` where these are all their pairs, else `GPU4–GPU0-3 GPU5–GPU6`."""
    labels = sorted({label for pair in pairs for label in pair}, key=natural)
    if len(labels) > 2 and len(pairs) == len(labels) * (len(labels) - 1) // 2:
        return f"{labels_folded(labels)} with each other"
    return " ".join(subject for subject, _ in folded_pairs(pairs))


def access_text(topology: NodeTopology, one: Device, other: Device) -> str:
    """`peer access: read, write and atomics over NVLink`."""
    access = peer_access(topology, one, other)
    word = {True: "", False: "no; ", None: "unknown; "}[access.allowed]
    return f"peer access: {word}{access.why}"


def route_text(route: Route | None) -> str:
    """`478 GB/s over NVSwitch (18 × 26.6 GB/s)`; the stations are those at which something is shared."""
    if route is None:
        return "no path is known"
    inner = [stop for stop in route.stops[1:-1] if stop.kind not in ("root", "cpu")]
    stations = ["PCIe" if stop.kind == "pci" else vertex_text(stop) for stop in inner]
    over = [name for at, name in enumerate(stations) if at == 0 or stations[at - 1] != name]
    way = f" over {', '.join(over)}" if over else " straight"
    if route.bytes_s is None:
        return f"path{way}; what it carries is unknown"
    most = "at most " if route.is_bound else ""
    return f"{most}{format.bandwidth(route.bytes_s)}{way} ({route.narrowest})"


def vertex_text(vertex: Vertex) -> str:
    """A station as people call it."""
    if vertex.kind == "numa":
        return f"NUMA node {vertex.id}".strip()
    if vertex.kind in ("switch", "network"):
        return vertex.id
    if vertex.kind == "fabric":
        return "the NVLink fabric"
    return f"{vertex.node}:{vertex.id}" if vertex.node else vertex.id


def path_text(fleet: TopologySnapshot, start: Device, end: Device) -> str:
    """The best path between two GPUs of any nodes, a line a station, and whether one may touch the other's memory."""
    route = between(fleet.nodes.values(), start.vertex, end.vertex)
    lines = [f"{_place(start)} to {_place(end)}: {route_text(route)}"]
    lines += [f"  {line}" for line in path_lines(fleet, start, end)]
    if start.vertex.node == end.vertex.node:
        lines.append(access_text(fleet.nodes[start.vertex.node], start, end))
    else:
        access = remote_access(start, end)
        lines.append(f"peer access: {'' if access.allowed else 'no; '}{access.why}")
    if route is not None and any(stop.kind == "network" for stop in route.stops):
        lines.append("that ports of one network reach each other is an assumption: no node tells it")
    return "\n".join(map(printable, lines))


def path_lines(fleet: TopologySnapshot, start: Device, end: Device) -> list[str]:
    """The stations of the best path, and between them, after a bar, the links."""
    route = between(fleet.nodes.values(), start.vertex, end.vertex)
    lines = []
    for at, stop in enumerate(route.stops if route else ()):
        lines.append(_stop(stop, start, end))
        if route is not None and at < route.hops:
            edge = _graph_edge(fleet, stop, route.stops[at + 1])
            lines += [f"  │ {edge}"] if edge else []
    return lines


def _place(gpu: Device) -> str:
    return f"{gpu.vertex.node} {gpu.label}"


def _stop(stop: Vertex, start: Device, end: Device) -> str:
    for device in (start, end):
        if device.vertex == stop:
            return _place(device)
    return vertex_text(stop)


def _graph_edge(fleet: TopologySnapshot, one: Vertex, other: Vertex) -> str:
    node = one.node or other.node
    data = fleet.nodes[node].graph.get_edge_data(one, other)
    bandwidth = data["bandwidth"] if data else None
    if bandwidth is not None:
        return f"{bandwidth.text}, {format.bandwidth(bandwidth.bytes_s)} ({bandwidth.source})"
    return "unknown bandwidth" if data and data["width"] is None else ""


def find_gpu(fleet: TopologySnapshot, name: str) -> Device:
    """The GPU that `node1:3` or `node1:gpu3` means. Raises LookupError, with what to write instead."""
    node, _, number = name.rpartition(":")
    topology = fleet.nodes.get(node)
    if topology is None:
        raise LookupError(f"{name!r}: no node {node!r} here told of its topology; write NODE:GPU, e.g. node1:0")
    label = f"GPU{number.lower().removeprefix('gpu')}"
    found: Sequence[Device] = [gpu for gpu in topology.gpus if gpu.label == label]
    if not found:
        raise LookupError(f"{name!r}: {node} has {', '.join(gpu.label for gpu in topology.gpus) or 'no GPU'}")
    return found[0]
