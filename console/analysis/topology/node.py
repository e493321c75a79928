"""One node's topology from `link`, `gpu_info` and `nic` records: devices, pairwise relations, and the link graph.

Nothing is guessed: a relation that neither driver nor kernel reports is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Final

import msgspec

from ...records import End, GpuInfo, Link, Nic
from ...text.nodeset_fold import natural
from .link_graph import Bandwidth, LinkEdge, LinkGraph, Vertex, of_nvlinks, of_port, of_xgmi, own_link, uplink

#: Unknown relation.
UNKNOWN: Final = "?"
#: All NVSwitches of a node, as one vertex.
NVSWITCH: Final = "NVSwitch"
#: Relation of two GPUs that xGMI connects.
XGMI: Final = "XGMI"
#: States of an active port.
UP_STATES: Final = ("active", "up")


class Device(msgspec.Struct, frozen=True):
    """A GPU or NIC; `label` is its name in the matrix: GPU0, NIC1."""

    vertex: Vertex
    label: str
    name: str | None  # GPU model or NIC device
    place: Link | None  # PCIe link towards the CPU
    info: GpuInfo | None = None
    ports: tuple[Nic, ...] = ()

    @property
    def numa(self) -> str | None:
        """NUMA node number."""
        if self.place is not None and self.place.b.id:
            return self.place.b.id
        return str(self.info.numa_node) if self.info and self.info.numa_node is not None else None

    @property
    def cpus(self) -> str | None:
        """CPU affinity list."""
        return (self.info.cpu_affinity if self.info else None) or (self.place.cpus if self.place else None)

    @property
    def width(self) -> int | None:
        """Current PCIe lanes."""
        width = self.place.width if self.place else None
        return width if width is not None else self.info.pcie_width if self.info else None


class TopologyFacts(msgspec.Struct, frozen=True):
    """Topology records of one node; MIG devices are ignored."""

    node: str
    gpus: Sequence[GpuInfo] = ()
    links: Sequence[Link] = ()
    nics: Sequence[Nic] = ()


@dataclass(frozen=True, eq=False)
class NodeTopology:
    """Topology of one node; `words` has the relation of every pair of labels, in the order of `devices`."""

    node: str
    gpus: tuple[Device, ...]
    nics: tuple[Device, ...]
    links: tuple[Link, ...]
    words: Mapping[tuple[str, str], str]
    simulated: bool = False
    switches: tuple[str, ...] = ()  # PCI addresses of the NVSwitches; "" if not reported
    _peers: Mapping[frozenset[str], Link] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        """GPUs, then NICs."""
        return (*self.gpus, *self.nics)

    @property
    def switch_title(self) -> str:
        """`NVSwitch ×4`; `NVSwitch, count not reported` if the driver does not report their addresses."""
        return f"{NVSWITCH} ×{len(self.switches)}" if all(self.switches) else f"{NVSWITCH}, count not reported"

    @cached_property
    def graph(self) -> LinkGraph:
        """Link graph, built lazily."""
        return _graph(self.node, self.devices, self.links)

    def word(self, label: str, other: str) -> str:
        """Relation of two devices as in nvidia-smi, rocm-smi: NV18, XGMI, PIX, PXB, PHB, NODE, SYS, X, or ?."""
        if label == other:
            return "X"
        return self.words.get((label, other)) or self.words.get((other, label)) or UNKNOWN

    def peer(self, gpu: Device, other: Device) -> Link | None:
        """Peer record of two GPUs."""
        return self._peers.get(frozenset((gpu.vertex.id, other.vertex.id)))

    def nearest_nics(self, gpu: Device) -> tuple[Device, ...]:
        """NICs nearest to a GPU; empty if the relations are unknown."""
        ranked = [(_NEARNESS.index(word), nic) for nic in self.nics if (word := self.word(gpu.label, nic.label)) in
                  _NEARNESS]  # fmt: skip
        best = min((rank for rank, _ in ranked), default=0)
        return tuple(nic for rank, nic in ranked if rank == best)


_NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def node_topology(facts: TopologyFacts) -> NodeTopology:
    """Build the topology of a node; independent of record order."""
    links = tuple(sorted(facts.links, key=lambda link: (link.type, link.a, link.b)))
    places = {link.a: link for link in links if link.type == "pcie"}
    gpus = tuple(_gpu_devices(facts, places))
    nics = tuple(_nic_devices(facts, places))
    nvlinks: dict[str, list[Link]] = {}
    for link in links:
        if link.type == "nvlink":
            nvlinks.setdefault(link.a.id, []).append(link)
    peers = {frozenset((link.a.id, link.b.id)): link for link in links if link.type == "peer"}
    fabric = {frozenset((link.a.id, link.b.id)) for link in links if link.type == "xgmi"}
    words = {}
    for device, other in combinations((*gpus, *nics), 2):
        word = None
        if device.info is not None and other.info is not None:
            pair = frozenset((device.vertex.id, other.vertex.id))
            peer = peers.get(pair)
            word = XGMI if pair in fabric else _bonded(nvlinks, device, other) or (peer.ancestor if peer else None)
        words[device.label, other.label] = word or _ancestor(device.place, other.place) or UNKNOWN
    return NodeTopology(
        facts.node, gpus, nics, links, words,
        simulated=any(link.simulated for link in links),
        switches=tuple(sorted({link.b.id for link in links if link.type == "nvlink" and link.b.kind == "switch"})),
        _peers=peers,
    )  # fmt: skip


def _gpu_devices(facts: TopologyFacts, places: Mapping[End, Link]) -> Iterator[Device]:
    whole = [info for info in facts.gpus if info.parent is None]
    for info in sorted(whole, key=lambda info: (info.index, info.uuid)):
        vertex = Vertex(facts.node, "gpu", info.uuid)
        yield Device(vertex, f"GPU{info.index}", info.name, places.get(End("gpu", info.uuid)), info)


def _nic_devices(facts: TopologyFacts, places: Mapping[End, Link]) -> Iterator[Device]:
    """RDMA NICs; without any, Ethernet, which then carries the job's traffic."""
    ports: dict[str, list[Nic]] = {}
    for nic in facts.nics:
        ports.setdefault(nic.device, []).append(nic)
    if any(link.simulated for link in facts.links):  # real NICs are unrelated to simulated GPUs
        ports = {name: mine for name, mine in ports.items() if End("nic", name) in places}
    rdma = {device for device, mine in ports.items() if any(port.rdma for port in mine)}
    for number, name in enumerate(sorted(rdma or ports, key=natural)):
        mine = tuple(sorted(ports[name], key=lambda port: port.port))
        yield Device(Vertex(facts.node, "nic", name), f"NIC{number}", name, places.get(End("nic", name)), ports=mine)


def _bonded(nvlinks: Mapping[str, Sequence[Link]], gpu: Device, other: Device) -> str | None:
    """NV# of two GPUs connected directly or through common switches."""
    mine, theirs = nvlinks.get(gpu.vertex.id, ()), nvlinks.get(other.vertex.id, ())
    direct = [link for link in mine if link.b == End("gpu", other.vertex.id)]
    direct = direct or [link for link in theirs if link.b == End("gpu", gpu.vertex.id)]
    if direct:
        return _count(direct, direct)
    ours = [link for link in mine if link.b.kind == "switch"]
    yours = [link for link in theirs if link.b.kind == "switch"]
    if {link.b for link in ours} & {link.b for link in yours}:
        return _count(ours, yours)
    return None


def _count(mine: Sequence[Link], theirs: Sequence[Link]) -> str | None:
    if any("up" in link.unsupported for link in (*mine, *theirs)):
        return f"NV{UNKNOWN}"
    up = min(sum(len(link.up) for link in links) for links in (mine, theirs))
    return f"NV{up}" if up else None


def _ancestor(link: Link | None, other: Link | None) -> str | None:
    """Nearest common ancestor, in the words of `nvidia-smi topo`.

    A PCIe switch shows as two bridges in a row, so devices behind one switch share their first or second bridge.
    """
    if link is None or other is None or not link.via or not other.via:
        return None
    for mine, address in enumerate(link.via):
        if address not in other.via:
            continue
        if mine == len(link.via) - 1:
            return "PHB"
        return "PIX" if max(mine, other.via.index(address)) <= 1 else "PXB"
    if link.b.id and other.b.id and link.b.id != other.b.id:
        return "SYS"
    return "NODE" if link.b.id == other.b.id else None


# -- the graph ---------------------------------------------------------------------------------------------------------


def _graph(node: str, devices: Sequence[Device], links: Iterable[Link]) -> LinkGraph:
    graph = LinkGraph(device.vertex for device in devices)
    vertices = {device.vertex for device in devices}
    bonded: dict[tuple[Vertex, Vertex], list[Link]] = {}
    for link in links:
        near = Vertex(node, link.a.kind, link.a.id)
        if link.type == "nvlink" and link.up and near in vertices:
            # traffic is spread over all NVSwitches of a node, so they are one vertex
            far = Vertex(node, link.b.kind, link.b.id if link.b.kind != "switch" else NVSWITCH)
            bonded.setdefault((near, far), []).append(link)
        elif link.type == "xgmi" and near in vertices:
            _join(graph, near, Vertex(node, link.b.kind, link.b.id), "xgmi", of_xgmi(link))
        elif link.type == "pcie" and link.via and near in vertices:
            _climb(graph, node, near, link)
        elif link.type == "numa":
            _join(graph, near, Vertex(node, "numa", link.b.id), "numa", None)
    for (near, far), mine in bonded.items():
        _join(graph, near, far, "nvlink", of_nvlinks(mine))
    for device in devices:
        for port in device.ports:
            if port.state in UP_STATES:
                _join(graph, device.vertex, network_of(port), "network", of_port(port))
        fabric = fabric_of(device.info) if device.info else None
        if fabric is not None:
            for switch in [end for end in graph.neighbors(device.vertex) if end.kind == "switch"]:
                graph.add_edge(switch, fabric, LinkEdge("fabric", math.inf, None))
    return graph


def _climb(graph: LinkGraph, node: str, device: Vertex, link: Link) -> None:
    """Add the path from a device over its bridges to its NUMA node; hops within a root complex are unbounded."""
    *bridges, root = link.via
    below, width = device, own_link(link)
    for address in bridges:
        above = Vertex(node, "pci", address)
        _join(graph, below, above, "pcie", width)
        below, width = above, uplink(link)
    top = Vertex(node, "root", root)
    if bridges:
        graph.add_edge(below, top, LinkEdge("pcie", math.inf, None))
    else:
        _join(graph, below, top, "pcie", width)
    graph.add_edge(top, Vertex(node, "numa", link.b.id), LinkEdge("pcie", math.inf, None))


def _join(graph: LinkGraph, near: Vertex, far: Vertex, kind: str, bandwidth: Bandwidth | None) -> None:
    """Add an edge; of parallel edges the wider one is kept (two ports of one NIC in one network)."""
    width = bandwidth.bytes_s if bandwidth else None
    edge, before = LinkEdge(kind, width, bandwidth), graph.edge(near, far)
    if before is None or edge.known_width > before.known_width:
        graph.add_edge(near, far, edge)


def network_of(port: Nic) -> Vertex:
    """Assumed network of a port: one per link layer, for InfiniBand one per subnet. Reachability is not reported."""
    layer = port.link_layer or "unknown"
    subnet = ":".join((port.gid or "").split(":")[:4]) if layer == "InfiniBand" else ""
    if subnet.startswith("fe80"):
        subnet = ""  # default prefix
    return Vertex("", "network", f"{layer} {subnet}".strip())


def fabric_of(info: GpuInfo) -> Vertex | None:
    """Multi-node NVLink fabric; None without a cluster id (the node's own switches)."""
    if info.fabric_state != "completed" or not info.fabric_cluster or not info.fabric_cluster.strip("0-"):
        return None
    return Vertex("", "fabric", f"{info.fabric_cluster}/{info.fabric_clique}")
