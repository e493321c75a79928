"""One node's topology: its devices, how every two of them are related, and the graph of its links.

What nodes say (`link`, `gpu_info`, `nic`) is put together here and nothing is guessed: a relation that neither the
driver nor the kernel tells is unknown. Paths are in `routes.py`, the comparison of nodes in `topology_classes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, Final, Literal, NamedTuple

from ...records import End, GpuInfo, Link, Nic
from ...text.nodeset_fold import natural
from .bandwidth import Bandwidth, of_nvlinks, of_port, own_link, uplink

#: A relation that nobody tells.
UNKNOWN: Final = "?"
#: All NVSwitches of a node, as one vertex.
NVSWITCH: Final = "NVSwitch"
#: The states of a port that carries traffic.
UP_STATES: Final = ("active", "up")


class Vertex(NamedTuple):
    """One thing of the graph. `node` is "" for what nodes share: a network, an NVLink fabric."""

    node: str
    kind: Literal["gpu", "nic", "switch", "cpu", "pci", "root", "numa", "network", "fabric", "unknown"]
    id: str


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a network card at its place. `label` is its name in the matrix: GPU0, NIC1."""

    vertex: Vertex
    label: str
    name: str | None  # of a GPU its model, of a card its device
    place: Link | None  # its way to the CPU
    info: GpuInfo | None = None
    ports: tuple[Nic, ...] = ()

    @property
    def numa(self) -> str | None:
        """The number of its NUMA node."""
        if self.place is not None and self.place.b.id:
            return self.place.b.id
        return str(self.info.numa_node) if self.info and self.info.numa_node is not None else None

    @property
    def cpus(self) -> str | None:
        return (self.info.cpu_affinity if self.info else None) or (self.place.cpus if self.place else None)

    @property
    def width(self) -> int | None:
        """PCIe lanes it has now."""
        known = self.place.width if self.place else None
        return known if known is not None else self.info.pcie_width if self.info else None


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    """All that one node said of its topology; MIG devices are parts of their GPU and play no role here."""

    node: str
    gpus: Sequence[GpuInfo] = ()
    links: Sequence[Link] = ()
    nics: Sequence[Nic] = ()


@dataclass(frozen=True, eq=False)
class NodeTopology:
    """`words` holds the relation of every two devices, by their labels in the order of `devices`."""

    node: str
    gpus: tuple[Device, ...]
    nics: tuple[Device, ...]
    links: tuple[Link, ...]
    words: Mapping[tuple[str, str], str]
    simulated: bool = False
    switches: tuple[str, ...] = ()  # addresses of the NVSwitches; "" where the driver keeps them to itself
    _peers: Mapping[frozenset[str], Link] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        return (*self.gpus, *self.nics)

    @property
    def switch_title(self) -> str:
        """`NVSwitch ×4`; without a number where the driver keeps their addresses to itself."""
        return f"{NVSWITCH} ×{len(self.switches)}" if all(self.switches) else NVSWITCH

    @cached_property
    def graph(self) -> Any:
        """The links as an nx.Graph of `Vertex`, made when somebody asks for a path.

        An edge has `width` (bytes/s; inf within a switch or a CPU, None where unknown), `bandwidth` and `type`.
        """
        return _graph(self.node, self.devices, self.links)

    def word(self, one: str, other: str) -> str:
        """How two devices are related, in the words of nvidia-smi: NV18, PIX, PXB, PHB, NODE, SYS, X, or ?."""
        if one == other:
            return "X"
        return self.words.get((one, other)) or self.words.get((other, one)) or UNKNOWN

    def peer(self, one: Device, other: Device) -> Link | None:
        """What the driver says of these two GPUs."""
        return self._peers.get(frozenset((one.vertex.id, other.vertex.id)))

    def nearest_nics(self, gpu: Device) -> tuple[Device, ...]:
        """The cards nearest to a GPU; none where their relation is not known."""
        ranked = [(_NEARNESS.index(word), nic) for nic in self.nics if (word := self.word(gpu.label, nic.label)) in
                  _NEARNESS]  # fmt: skip
        best = min((rank for rank, _ in ranked), default=0)
        return tuple(nic for rank, nic in ranked if rank == best)


_NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def node_topology(facts: TopologyFacts) -> NodeTopology:
    """Put together what a node said. The order in which it said it plays no role."""
    links = tuple(sorted(facts.links, key=lambda link: (link.type, link.a, link.b)))
    places = {link.a: link for link in links if link.type == "pcie"}
    gpus = tuple(_gpu_devices(facts, places))
    nics = tuple(_nic_devices(facts, places))
    nvlinks: dict[str, list[Link]] = {}
    for link in links:
        if link.type == "nvlink":
            nvlinks.setdefault(link.a.id, []).append(link)
    peers = {frozenset((link.a.id, link.b.id)): link for link in links if link.type == "peer"}
    words = {}
    for one, other in combinations((*gpus, *nics), 2):
        word = None
        if one.info is not None and other.info is not None:
            peer = peers.get(frozenset((one.vertex.id, other.vertex.id)))
            word = _bonded(nvlinks, one, other) or (peer.ancestor if peer else None)
        words[one.label, other.label] = word or _ancestor(one.place, other.place) or UNKNOWN
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
    """RDMA cards; plain Ethernet where there are none, for then a job's traffic goes there."""
    ports: dict[str, list[Nic]] = {}
    for nic in facts.nics:
        ports.setdefault(nic.device, []).append(nic)
    if any(link.simulated for link in facts.links):  # cards of the machine below have nothing to do with such GPUs
        ports = {name: mine for name, mine in ports.items() if End("nic", name) in places}
    rdma = {device for device, mine in ports.items() if any(port.rdma for port in mine)}
    for number, name in enumerate(sorted(rdma or ports, key=natural)):
        mine = tuple(sorted(ports[name], key=lambda port: port.port))
        yield Device(Vertex(facts.node, "nic", name), f"NIC{number}", name, places.get(End("nic", name)), ports=mine)


def _bonded(nvlinks: Mapping[str, Sequence[Link]], one: Device, other: Device) -> str | None:
    """NV and the number of NVLinks that two GPUs have together, directly or through the same switches."""
    mine, theirs = nvlinks.get(one.vertex.id, ()), nvlinks.get(other.vertex.id, ())
    direct = [link for link in mine if link.b == End("gpu", other.vertex.id)]
    direct = direct or [link for link in theirs if link.b == End("gpu", one.vertex.id)]
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


def _ancestor(one: Link | None, other: Link | None) -> str | None:
    """The nearest thing above both, from the bridges above each; the words are those of `nvidia-smi topo`.

    A PCIe switch shows as two bridges in a row, so that devices behind one of them meet at their first or second.
    """
    if one is None or other is None or not one.via or not other.via:
        return None
    for mine, address in enumerate(one.via):
        if address not in other.via:
            continue
        if mine == len(one.via) - 1:
            return "PHB"
        return "PIX" if max(mine, other.via.index(address)) <= 1 else "PXB"
    if one.b.id and other.b.id and one.b.id != other.b.id:
        return "SYS"
    return "NODE" if one.b.id == other.b.id else None


# -- the graph ---------------------------------------------------------------------------------------------------------


def _graph(node: str, devices: Sequence[Device], links: Iterable[Link]) -> Any:
    import networkx as nx  # 75 ms, which whoever draws no topology need not wait for

    graph = nx.Graph()
    graph.add_nodes_from(device.vertex for device in devices)
    known = {device.vertex for device in devices}
    bonded: dict[tuple[Vertex, Vertex], list[Link]] = {}
    for link in links:
        one = Vertex(node, link.a.kind, link.a.id)
        if link.type == "nvlink" and link.up and one in known:
            # traffic is spread over all NVSwitches of a node: for paths they are one
            other = Vertex(node, link.b.kind, link.b.id if link.b.kind != "switch" else NVSWITCH)
            bonded.setdefault((one, other), []).append(link)
        elif link.type == "pcie" and link.via and one in known:
            _climb(graph, node, one, link)
        elif link.type == "numa":
            _join(graph, one, Vertex(node, "numa", link.b.id), "numa", None)
    for (one, other), mine in bonded.items():
        _join(graph, one, other, "nvlink", of_nvlinks(mine))
    for device in devices:
        for port in device.ports:
            if port.state in UP_STATES:
                _join(graph, device.vertex, network_of(port), "network", of_port(port))
        fabric = fabric_of(device.info) if device.info else None
        if fabric is not None:
            for switch in [end for end in graph.neighbors(device.vertex) if end.kind == "switch"]:
                graph.add_edge(switch, fabric, type="fabric", width=math.inf, bandwidth=None)
    return graph


def _climb(graph: Any, node: str, device: Vertex, link: Link) -> None:
    """From a device over its bridges to its NUMA node; what is no link (within a root complex) has no bound."""
    *bridges, root = link.via
    below, width = device, own_link(link)
    for address in bridges:
        above = Vertex(node, "pci", address)
        _join(graph, below, above, "pcie", width)
        below, width = above, uplink(link)
    top = Vertex(node, "root", root)
    if bridges:
        graph.add_edge(below, top, type="pcie", width=math.inf, bandwidth=None)
    else:
        _join(graph, below, top, "pcie", width)
    graph.add_edge(top, Vertex(node, "numa", link.b.id), type="pcie", width=math.inf, bandwidth=None)


def _join(graph: Any, one: Vertex, other: Vertex, kind: str, bandwidth: Bandwidth | None) -> None:
    """An edge; of two that say the same, the wider stays (two ports of one card into one network)."""
    width = bandwidth.bytes_s if bandwidth else None
    before = graph.get_edge_data(one, other)
    if before is None or (width or 0.0) > (before["width"] or 0.0):
        graph.add_edge(one, other, type=kind, width=width, bandwidth=bandwidth)


def network_of(port: Nic) -> Vertex:
    """The network that a port is taken to be in: all ports of one link layer, of InfiniBand those of one subnet.

    Nothing on a node tells who can reach whom; that they all do is an assumption, and is written where it is used.
    """
    layer = port.link_layer or "unknown"
    subnet = ":".join((port.gid or "").split(":")[:4]) if layer == "InfiniBand" else ""
    if subnet.startswith("fe80"):
        subnet = ""  # the prefix of a subnet that nobody has given one
    return Vertex("", "network", f"{layer} {subnet}".strip())


def fabric_of(info: GpuInfo) -> Vertex | None:
    """The NVLink fabric that reaches beyond the node; a fabric without an id is the node's own switches."""
    if info.fabric_state != "completed" or not info.fabric_cluster or not info.fabric_cluster.strip("0-"):
        return None
    return Vertex("", "fabric", f"{info.fabric_cluster}/{info.fabric_clique}")
