"""PCIe tree of one node: NUMA nodes, host bridges, PCIe switches, GPUs and NICs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ..analysis.topology.link_graph import Bandwidth, Vertex, of_nvlinks, of_xgmi, own_link, uplink
from ..analysis.topology.node import Device, NodeTopology
from ..records import Link, Nic
from ..text import format
from ..text.nodeset_fold import natural
from .snapshot import TopologySnapshot, Traffic

#: Sources of the bandwidths.
SOURCES: Final = (
    "GB/s in one direction: PCIe nominal by generation and lanes, NVLink and xGMI reported by the driver unless marked "
    "nominal, network ports at the negotiated rate; (now …): last measurement"
)


class TopologyBranch(msgspec.Struct):
    """A device, or a bridge shared by several devices; `link` leads to its parent."""

    vertex: Vertex
    title: str
    device: Device | None = None
    link: Bandwidth | None = None
    children: list[TopologyBranch] = msgspec.field(default_factory=list)


class Drawn(msgspec.Struct, frozen=True):
    """One line of the drawing: tree lines, title, facts."""

    indent: str
    title: str
    facts: str
    device: Device | None = None


def pci_tree(topology: NodeTopology) -> list[TopologyBranch]:
    """One branch per NUMA node; bridges with a single child are omitted."""
    roots: dict[str, TopologyBranch] = {}
    for device in topology.devices:
        numa = device.numa or ""
        cpus = f"  CPUs {device.cpus}" if device.cpus else ""
        title = f"NUMA node {numa}{cpus}" if numa else "NUMA node unknown"
        branch = roots.setdefault(numa, TopologyBranch(Vertex(topology.node, "numa", numa), title))
        via = device.place.via if device.place else ()
        for address in reversed(via):
            kind, name = ("root", "host bridge") if address == via[-1] else ("pci", "PCIe switch")
            vertex = Vertex(topology.node, kind, address)  # type: ignore[arg-type]
            below = next((child for child in branch.children if child.vertex == vertex), None)
            if below is None:
                below = TopologyBranch(vertex, f"{name} {address}", link=uplink(device.place) if device.place else None)
                branch.children.append(below)
            branch = below
        own = own_link(device.place) if device.place else None
        branch.children.append(TopologyBranch(device.vertex, device.label, device, own))
    for root in roots.values():
        root.children = [_shortened(child) for child in root.children]
    return [roots[numa] for numa in sorted(roots, key=natural)]


def _shortened(branch: TopologyBranch) -> TopologyBranch:
    """The branch without bridges that have a single child; recursion depth is bounded by 8-bit bus numbers."""
    branch.children = [_shortened(child) for child in branch.children]
    return branch.children[0] if branch.device is None and len(branch.children) == 1 else branch


def drawing(fleet: TopologySnapshot, node: str) -> Iterator[Drawn]:
    """Lines of the tree of one node."""
    topology = fleet.nodes[node]
    if topology.switches:
        yield Drawn("", topology.switch_title, ", ".join(filter(None, topology.switches)))
    for root in pci_tree(topology):
        yield Drawn("", root.title, "")
        yield from _lines(fleet, topology, root.children, "")


def _lines(
    fleet: TopologySnapshot, topology: NodeTopology, branches: Sequence[TopologyBranch], indent: str
) -> Iterator[Drawn]:
    for branch in branches:
        last = branch is branches[-1]
        facts = _device_facts(fleet, topology, branch.device) if branch.device else []
        if branch.link is not None:
            kind = f"{branch.link.text} {format.bandwidth(branch.link.bytes_s)}"
            measured = fleet.figures.pcie(branch.vertex) if branch.device else None
            facts.insert(0, kind + _measured(measured))
        yield Drawn(indent + ("└─ " if last else "├─ "), branch.title, "  ".join(facts), branch.device)
        yield from _lines(fleet, topology, branch.children, indent + ("   " if last else "│  "))


def _device_facts(fleet: TopologySnapshot, topology: NodeTopology, device: Device) -> list[str]:
    if device.info is None:
        return [device.name or "", *(_port_text(fleet, port) for port in device.ports)]
    facts = []
    for other, bandwidth in nvlinks_of(topology, device):
        carried = "" if bandwidth is None else f" {bandwidth.text}"
        total = "" if bandwidth is None or "×" not in bandwidth.text else f" = {format.bandwidth(bandwidth.bytes_s)}"
        facts.append(f"{link_name(topology)} to {other}{carried}{total}")
    if facts:
        facts[-1] += _measured(fleet.figures.nvlink(device.vertex))
    down = sum(len(link.links) - len(link.up) for link in topology.links
               if link.type == "nvlink" and link.a.id == device.vertex.id and "up" not in link.unsupported)  # fmt: skip
    if down:
        facts.append(f"{format.plural(down, 'NVLink')} down")
    ranks = fleet.ranks_text([topology.node], device.label)
    if ranks:
        groups = fleet.group_placement.text([topology.node], device.label)
        facts.append(f"rank {ranks}" + (f" in {groups}" if groups else ""))
    return facts


def nvlinks_of(topology: NodeTopology, gpu: Device) -> list[tuple[str, Bandwidth | None]]:
    """Peers of a GPU's NVLinks or of its xGMI with the total bandwidth: ("NVSwitch", …), ("GPU1", …)."""
    labels = {device.vertex.id: device.label for device in topology.gpus}
    ends: dict[str, list[Link]] = {}
    fabric: dict[str, Bandwidth | None] = {}
    for link in topology.links:
        if link.type == "xgmi" and gpu.vertex.id in (link.a.id, link.b.id):
            far = link.b if link.a.id == gpu.vertex.id else link.a
            fabric[labels.get(far.id) or "unknown"] = of_xgmi(link)
        if link.type == "nvlink" and gpu.vertex.id in (link.a.id, link.b.id) and link.up:
            far = link.b if link.a.id == gpu.vertex.id else link.a
            if far.kind == "gpu" and link.a.id != gpu.vertex.id:
                continue  # each GPU reports its own side
            name = {"switch": "NVSwitch", "cpu": "CPU"}.get(far.kind) or labels.get(far.id) or "unknown"
            ends.setdefault(name, []).append(link)
    widths = {**fabric, **{name: of_nvlinks(links) for name, links in ends.items()}}
    return sorted(widths.items(), key=lambda item: natural(item[0]))


def link_name(topology: NodeTopology) -> str:
    """What connects the GPUs of a node, NVLink or xGMI."""
    return "xGMI" if any(link.type == "xgmi" for link in topology.links) else "NVLink"


def _port_text(fleet: TopologySnapshot, port: Nic) -> str:
    rate = "" if port.rate_bytes_s is None else f"{format.port_speed(port.rate_bytes_s)} "
    measured = _measured(fleet.figures.port(port.node, port.device, port.port), format.byte_rate)
    return f"{rate}{port.state or 'state unknown'}{measured}"


def _measured(traffic: Traffic | None, form: Callable[[float | None], str] = format.link_rate) -> str:
    if traffic is None or traffic == (None, None):
        return ""
    rx, tx = map(form, traffic)
    return f" (now {rx} in, {tx} out)"
