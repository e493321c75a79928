"""Topology as JSON (`gconsole topo --format json`); the schema is documented in `gconsole schema`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations
from typing import Final

import msgspec

from ..analysis.topology.classes import NodeClass
from ..analysis.topology.link_graph import Bandwidth, of_nvlinks, of_port, of_xgmi, own_link
from ..analysis.topology.node import UP_STATES, Device, NodeTopology, network_of
from ..analysis.topology.routes import between, peer_access
from ..text.documents import pretty
from .snapshot import TopologySnapshot, Traffic

SCHEMA: Final = "gconsole.topology/1"


class DifferenceLine(msgspec.Struct):
    """A difference: `subject` is `value` on `nodes` and `usual` in `than` (a class, or the rest of their own)."""

    nodes: tuple[str, ...]
    subject: str  # GPU4–GPU5, GPU3 PCIe width, driver
    value: str
    usual: str
    than: str
    text: str  # the same as a sentence


class ClassLine(msgspec.Struct):
    """Nodes with identical topology; the matrix is that of `nvidia-smi topo -m`, a row and a column per label."""

    name: str  # A is the largest class
    nodes: tuple[str, ...]
    title: str
    simulated: bool
    labels: tuple[str, ...]  # GPU0, …, NIC0, …
    matrix: list[list[str]]
    differences: list[DifferenceLine]  # from the class it is compared with, and of single nodes from their class


class DeviceLine(msgspec.Struct):
    """A GPU or NIC."""

    label: str
    kind: str  # gpu, nic
    id: str  # a GPU's uuid, a card's device
    name: str | None
    pci_bus_id: str | None
    numa_node: int | None
    cpu_affinity: str | None
    pcie_gen: int | None
    pcie_width: int | None
    nearest_nics: list[str]  # of a GPU: their labels
    ranks: list[int]  # of a GPU: known ranks that use it
    ranks_presumed: bool  # derived from the local rank only
    groups: list[str]  # of a GPU: the labels of the parallel groups of these ranks


class TopologyNode(msgspec.Struct):
    """One node; `class` is the name of its class."""

    node: str
    node_class: str | None = msgspec.field(name="class")
    simulated: bool
    switches: list[str]  # PCI addresses of its NVSwitches
    devices: list[DeviceLine]


class TopologyLink(msgspec.Struct):
    """One edge, or the relation of two devices of a node.

    `type`: nvlink (GPU to switch, CPU or GPU), pcie (device to NUMA node), network (NIC to the network of its port),
    pair (two GPUs: relation and best path). Bandwidths are per direction; `bandwidth_source`: driver, nominal or port;
    `at_most`: part of the path is unknown.
    """

    node: str
    type: str
    a: str  # a label, or the id of what has none
    b: str
    relation: str | None = None  # pair: NV18, PIX, …
    bandwidth_bytes_s: float | None = None
    bandwidth_source: str | None = None
    bandwidth_text: str | None = None
    at_most: bool = False
    rx_bytes_s: float | None = None  # measured last
    tx_bytes_s: float | None = None
    up: bool | None = None
    via: tuple[str, ...] = ()  # pcie: the bridges between; pair: the stations of the path
    peer_access: bool | None = None  # pair
    why: str | None = None
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # unavailable fields, and why


class ParallelGroupLine(msgspec.Struct):
    """A process group of a job from its newest capture, mapped to nodes."""

    job: str
    kind: str  # tp, dp; `group` without a description
    label: str  # tp 3
    name: str  # PyTorch's own, the same on all ranks
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool  # whether those are all
    nodes: tuple[str, ...]  # known nodes of its ranks
    relation: str | None  # within one node: the farthest between its GPUs, as in the matrix


class TopologyDocument(msgspec.Struct):
    """`gconsole.topology/1`: the classes of nodes, every node with its devices, every link, the parallel groups."""

    schema: str
    classes: list[ClassLine]
    nodes: list[TopologyNode]
    links: list[TopologyLink]
    groups: list[ParallelGroupLine]


def class_lines(classes: tuple[NodeClass, ...]) -> list[ClassLine]:
    """The classes, largest first."""
    return [_class_line(made) for made in classes]


def document(fleet: TopologySnapshot, node: str | None = None) -> TopologyDocument:
    """Document of all nodes, or of one node and its class."""
    nodes = [fleet.nodes[node]] if node is not None else list(fleet.nodes.values())
    names = {topology.node for topology in nodes}
    classes = tuple(made for made in fleet.classes if names & set(made.nodes))
    return TopologyDocument(
        SCHEMA,
        class_lines(classes),
        [_node_line(fleet, topology) for topology in nodes],
        [line for topology in nodes for line in _link_lines(fleet, topology)],
        list(_group_lines(fleet, names if node is not None else None)),
    )


def to_json(fleet: TopologySnapshot, node: str | None = None) -> str:
    """The document, indented."""
    return pretty(document(fleet, node))


def _class_line(made: NodeClass) -> ClassLine:
    labels = tuple(device.label for device in made.model.devices)
    differences = [
        DifferenceLine(d.nodes, d.subject, d.value, d.usual, d.than, d.text) for d in (*made.differences, *made.odd)
    ]
    rows = [[made.model.word(label, other) for other in labels] for label in labels]
    return ClassLine(made.name, made.nodes, made.title, made.model.simulated, labels, rows, differences)


def _node_line(fleet: TopologySnapshot, topology: NodeTopology) -> TopologyNode:
    made = fleet.class_of(topology.node)
    devices = [_device_line(fleet, topology, device) for device in topology.devices]
    switches = [switch for switch in topology.switches if switch]
    return TopologyNode(topology.node, made.name if made else None, topology.simulated, switches, devices)


def _device_line(fleet: TopologySnapshot, topology: NodeTopology, device: Device) -> DeviceLine:
    on = fleet.ranks.get(device.vertex)
    address = device.info.pci_bus_id if device.info else next((port.pci_bus_id for port in device.ports), None)
    return DeviceLine(
        device.label, device.vertex.kind, device.vertex.id, device.name, address,
        int(device.numa) if device.numa and device.numa.isdecimal() else None, device.cpus,
        device.place.gen if device.place else None, device.width,
        [nic.label for nic in topology.nearest_nics(device)] if device.info else [],
        sorted(rank for _, rank in on.ranks) if on else [], bool(on and on.presumed),
        [group.label for group in fleet.group_placement.on(topology.node, device.label)] if device.info else [],
    )  # fmt: skip


def _link_lines(fleet: TopologySnapshot, topology: NodeTopology) -> Iterator[TopologyLink]:
    labels = {device.vertex.id: device.label for device in topology.devices}
    devices = {device.vertex.id: device for device in topology.devices}
    for link in topology.links:
        if link.type == "nvlink" and link.a.id in devices:
            traffic = fleet.figures.nvlinks(devices[link.a.id].vertex, link.links)
            is_known = "up" not in link.unsupported
            yield _line(topology.node, "nvlink", labels[link.a.id], labels.get(link.b.id) or link.b.id or link.b.kind,
                        of_nvlinks([link]), traffic, up=bool(link.up) if is_known else None,
                        unsupported=link.unsupported)  # fmt: skip
        elif link.type == "xgmi" and link.a.id in devices:
            far = labels.get(link.b.id) or link.b.id
            yield _line(topology.node, "xgmi", labels[link.a.id], far, of_xgmi(link), Traffic(),
                        unsupported=link.unsupported)  # fmt: skip
        elif link.type == "pcie" and link.a.id in devices:
            device = devices[link.a.id]
            measured = fleet.figures.pcie(device.vertex)
            yield _line(topology.node, "pcie", device.label, f"NUMA{link.b.id}", own_link(link), measured, via=link.via,
                        unsupported=link.unsupported)  # fmt: skip
    for nic in topology.nics:
        for port in nic.ports:
            up = None if port.state is None else port.state in UP_STATES
            traffic = fleet.figures.port(topology.node, port.device, port.port)
            yield _line(topology.node, "network", nic.label, network_of(port).id, of_port(port), traffic, up=up)
    for gpu, other in combinations(topology.gpus, 2):
        yield _pair(topology, gpu, other)


def _group_lines(fleet: TopologySnapshot, names: Collection[str] | None) -> Iterator[ParallelGroupLine]:
    """Groups of all nodes, or those with ranks on the nodes `names`."""
    for group in fleet.groups:
        nodes = fleet.group_placement.nodes(group)
        if names is None or set(nodes) & set(names):
            yield ParallelGroupLine(group.job, group.kind, group.label, group.name, group.desc, group.ranks,
                                    group.is_whole, nodes, fleet.group_placement.relation(group))  # fmt: skip


def _line(
    node: str, kind: str, a: str, b: str, bandwidth: Bandwidth | None, traffic: Traffic, *, up: bool | None = None,
    via: tuple[str, ...] = (), unsupported: dict[str, str] | None = None,
) -> TopologyLink:  # fmt: skip
    line = TopologyLink(node, kind, a, b, up=up, via=via, unsupported=unsupported or {})
    line.rx_bytes_s, line.tx_bytes_s = traffic
    if bandwidth is not None:
        line.bandwidth_bytes_s, line.bandwidth_source = bandwidth.bytes_s, bandwidth.source
        line.bandwidth_text = bandwidth.text
    return line


def _pair(topology: NodeTopology, gpu: Device, other: Device) -> TopologyLink:
    access, route = peer_access(topology, gpu, other), between([topology], gpu.vertex, other.vertex)
    line = TopologyLink(topology.node, "pair", gpu.label, other.label, topology.word(gpu.label, other.label))
    line.peer_access, line.why = access.allowed, access.why
    if route is not None:
        line.bandwidth_bytes_s, line.at_most = route.bytes_s, route.is_bound
        line.bandwidth_text, line.via = route.narrowest or None, tuple(stop.id for stop in route.stops[1:-1])
    return line
