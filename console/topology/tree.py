"""One node drawn as the tree it is: NUMA nodes, host bridges, PCIe switches, and at the leaves GPUs and cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..analysis.topology.bandwidth import Bandwidth, of_nvlinks, own_link, uplink
from ..analysis.topology.node import Device, NodeTopology, Vertex
from ..records import Link, Nic
from ..text import format
from ..text.nodeset_fold import natural
from .snapshot import TopologySnapshot, Traffic

#: Where the bandwidths of a drawing come from.
SOURCES: Final = (
    "GB/s in one direction: PCIe nominal for its generation and lanes, NVLink as the driver states it unless it says "
    "nominal, a network port at the rate it has negotiated; (now …) is what was measured last"
)


@dataclass
class TopologyBranch:
    """A device, or a bridge that several devices share; `link` is what leads to what is above it."""

    vertex: Vertex
    title: str
    device: Device | None = None
    link: Bandwidth | None = None
    children: list[TopologyBranch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One line of the drawing: its lines to the left, what stands there, and what is known of it."""

    indent: str
    title: str
    facts: str
    device: Device | None = None


def pci_tree(topology: NodeTopology) -> list[TopologyBranch]:
    """A branch a NUMA node. A chain of bridges with one thing below it is left out: only what is shared is shown."""
    roots: dict[str, TopologyBranch] = {}
    for device in topology.devices:
        numa = device.numa or ""
        cpus = f"  CPUs {device.cpus}" if device.cpus else ""
        title = f"NUMA node {numa}{cpus}" if numa else "NUMA node unknown"
        at = roots.setdefault(numa, TopologyBranch(Vertex(topology.node, "numa", numa), title))
        via = device.place.via if device.place else ()
        for address in reversed(via):
            kind, name = ("root", "host bridge") if address == via[-1] else ("pci", "PCIe switch")
            vertex = Vertex(topology.node, kind, address)  # type: ignore[arg-type]
            found = next((child for child in at.children if child.vertex == vertex), None)
            if found is None:
                found = TopologyBranch(vertex, f"{name} {address}", link=uplink(device.place) if device.place else None)
                at.children.append(found)
            at = found
        own = own_link(device.place) if device.place else None
        at.children.append(TopologyBranch(device.vertex, device.label, device, own))
    for root in roots.values():
        root.children = [_shortened(child) for child in root.children]
    return [roots[numa] for numa in sorted(roots, key=natural)]


def _shortened(branch: TopologyBranch) -> TopologyBranch:
    """Without bridges that lead to one thing only. Chains are short: a bus number has eight bits."""
    branch.children = [_shortened(child) for child in branch.children]
    return branch.children[0] if branch.device is None and len(branch.children) == 1 else branch


def drawing(fleet: TopologySnapshot, node: str) -> Iterator[Drawn]:
    """The lines that show one node."""
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
        facts.append(f"NVLink to {other}{carried}{total}")
    if facts:
        facts[-1] += _measured(fleet.figures.nvlink(device.vertex))
    down = sum(len(link.links) - len(link.up) for link in topology.links
               if link.type == "nvlink" and link.a.id == device.vertex.id and "up" not in link.unsupported)  # fmt: skip
    if down:
        facts.append(f"{down} NVLink{'s' * (down != 1)} down")
    ranks = fleet.ranks_text([topology.node], device.label)
    if ranks:
        groups = fleet.group_placement.text([topology.node], device.label)
        facts.append(f"rank {ranks}" + (f" in {groups}" if groups else ""))
    return facts


def nvlinks_of(topology: NodeTopology, gpu: Device) -> list[tuple[str, Bandwidth | None]]:
    """What a GPU's NVLinks lead to, and what they carry together: ("NVSwitch", …), ("GPU1", …)."""
    labels = {device.vertex.id: device.label for device in topology.gpus}
    ends: dict[str, list[Link]] = {}
    for link in topology.links:
        if link.type == "nvlink" and gpu.vertex.id in (link.a.id, link.b.id) and link.up:
            far = link.b if link.a.id == gpu.vertex.id else link.a
            if far.kind == "gpu" and link.a.id != gpu.vertex.id:
                continue  # each GPU tells its own side
            name = {"switch": "NVSwitch", "cpu": "CPU"}.get(far.kind) or labels.get(far.id) or "unknown"
            ends.setdefault(name, []).append(link)
    return [(name, of_nvlinks(links)) for name, links in sorted(ends.items(), key=lambda item: natural(item[0]))]


def _port_text(fleet: TopologySnapshot, port: Nic) -> str:
    rate = "" if port.rate_bytes_s is None else f"{format.port_speed(port.rate_bytes_s)} "
    measured = _measured(fleet.figures.port(port.node, port.device, port.port))
    return f"{rate}{port.state or 'state unknown'}{measured}"


def _measured(traffic: Traffic | None) -> str:
    if traffic is None or traffic == (None, None):
        return ""
    rx, tx = ("–" if value is None else f"{value / 1e9:.3g}" for value in traffic)
    return f" (now {rx} in, {tx} out)"
