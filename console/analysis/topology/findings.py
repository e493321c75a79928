"""Findings about topology differences, without those that health findings report for the same device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ...text.nodeset_fold import fold
from ..finding import FindingDraft
from .classes import Aspect, Difference, NodeClass, pairs_subject, trait_subject
from .node import Device, NodeTopology

#: Finding id.
DIFFERS: Final = "topology_differs"
#: Source record field of each aspect.
_RECORD: dict[Aspect, str] = {
    "devices": "gpu_info", "relation": "link", "numa": "link.b", "pcie": "link.width", "driver": "gpu_info.driver",
    "vbios": "gpu_info.vbios", "limit": "gpu_info", "mode": "gpu_info", "nic": "nic",
}  # fmt: skip
#: Devices of a reported difference of a whole node.
_NOTHING = ("",)


def difference_findings(
    classes: Sequence[NodeClass], reported: ReportedFindings | None = None
) -> tuple[FindingDraft, ...]:
    """One finding per set of culprits, without `reported` differences.

    Severity is info for differences without a majority to compare with.
    """
    reported = reported or ReportedFindings()
    by_culprits: dict[tuple[str, ...], list[tuple[Difference, NodeClass]]] = {}
    for made in classes:
        for whole in (*made.differences, *made.odd):
            for difference in reported.unreported(whole):
                by_culprits.setdefault(_culprits(difference, made), []).append((difference, made))
    return tuple(_finding(culprits, those) for culprits, those in by_culprits.items())


def _finding(culprits: tuple[str, ...], those: Sequence[tuple[Difference, NodeClass]]) -> FindingDraft:
    sim = "SIM " if any(made.model.simulated for _, made in those) else ""
    is_fault = any(difference.is_minority for difference, _ in those)
    return FindingDraft(
        id=DIFFERS,
        severity="warning" if is_fault else "info",
        confidence="certain" if is_fault else "possible",
        culprits=culprits,
        text=f"{sim}{fold(those[0][0].nodes)}: " + "; ".join(difference.phrase for difference, _ in those),
        evidence=tuple(f"{sim}{_RECORD[difference.aspect]} {difference.text}" for difference, _ in those),
    )


def _culprits(difference: Difference, made: NodeClass) -> tuple[str, ...]:
    """Devices of a device trait, else the nodes."""
    if not difference.devices or difference.aspect in ("relation", "devices"):
        return difference.nodes
    names = [_name(made.model, label) or label for label in difference.devices]
    return tuple(f"{node}:{name}" for node in difference.nodes for name in names)


def _name(topology: NodeTopology | None, label: str) -> str | None:
    """Device name in findings: gpu4, mlx5_0."""
    device = next((device for device in topology.devices if device.label == label), None) if topology else None
    return None if device is None else f"gpu{device.info.index}" if device.info else device.name


class ReportedFindings:
    """Health findings, indexed to match differences; `nodes` has the links of each node."""

    def __init__(self, reported: Iterable[FindingDraft] = (), nodes: Mapping[str, NodeTopology] | None = None) -> None:
        self._nodes = nodes or {}
        self._parts: dict[tuple[str, str], frozenset[str]] = {
            (finding.id, culprit): frozenset(finding.parts) for finding in reported for culprit in finding.culprits
        }

    def unreported(self, difference: Difference) -> Iterator[Difference]:
        """The unreported part of a difference: per node all of it, some devices, or nothing."""
        left: dict[tuple[str, ...], list[str]] = {}
        for node in difference.nodes:
            left.setdefault(self._unreported_devices(node, difference), []).append(node)
        for devices, nodes in left.items():
            if devices == difference.devices:
                yield replace(difference, nodes=tuple(nodes))
            elif difference.aspect == "relation" and len(devices) > 1:
                yield replace(difference, nodes=tuple(nodes), devices=devices, subject=pairs_subject(devices))
            elif difference.aspect != "relation" and devices and devices != _NOTHING:
                subject = trait_subject(devices, difference.trait)
                yield replace(difference, nodes=tuple(nodes), devices=devices, subject=subject)

    def _unreported_devices(self, node: str, difference: Difference) -> tuple[str, ...]:
        if difference.aspect == "relation":
            first, *others = difference.devices
            left = [other for other in others if not self._is_pair_reported(node, difference, first, other)]
            return (first, *left)
        if not difference.devices:
            return _NOTHING if self._is_reported(node, difference, "") else ()
        return tuple(label for label in difference.devices if not self._is_reported(node, difference, label))

    def _is_reported(self, node: str, difference: Difference, label: str) -> bool:
        """Whether a finding reports that trait of the device, or of the node."""
        if difference.aspect == "driver":
            return "driver" in self._parts.get(("version_skew", node), ())
        name = _name(self._nodes.get(node), label)
        if difference.trait in ("ECC", "power limit"):
            return difference.trait in self._parts.get(("gpu_settings", f"{node}:{name}"), ())
        if difference.trait == "PCIe width":
            return "width" in self._parts.get(("pcie_degraded", f"{node}:{name}"), ())
        if difference.aspect == "nic" and difference.trait.startswith("state"):
            port = difference.trait.removeprefix("state").removeprefix(" port ")
            return ("nic_down", f"{node}:{name}" + (f"/{port}" if port not in ("", "1") else "")) in self._parts
        return False

    def _is_pair_reported(self, node: str, difference: Difference, label: str, other: str) -> bool:
        """Whether the missing NVLinks of these two GPUs are reported as down."""
        usual, now = _bonded(difference.usual), _bonded(difference.value)
        devices = {device.label: device for device in self._nodes[node].gpus} if node in self._nodes else {}
        if not usual or now is None or label not in devices or other not in devices:
            return False
        ends = ((devices[label], devices[other]), (devices[other], devices[label]))
        return any(len(self._reported_links(node, *end)) >= usual - now for end in ends)

    def _reported_links(self, node: str, gpu: Device, peer: Device) -> set[str]:
        """Numbers of the NVLinks of `gpu` that may lead to `peer`, are down, and are reported."""
        down = self._parts.get(("nvlink_down", f"{node}:gpu{gpu.info.index if gpu.info else ''}"), frozenset())
        links = [link for link in self._nodes[node].links if link.type == "nvlink" and link.a.id == gpu.vertex.id
                 and (link.b.id == peer.vertex.id or link.b.kind in ("switch", "unknown"))]  # fmt: skip
        return {str(number) for link in links for number in link.links if number not in link.up} & down


def _bonded(word: str) -> int | None:
    """Number of NVLinks of a matrix word; None if unknown."""
    number = word.removeprefix("NV")
    return 0 if number == word else int(number) if number.isdecimal() else None
