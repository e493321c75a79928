"""Removes topology differences that health findings already report for the same links or devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..finding import FindingDraft
from .classes import Difference, pairs_subject, trait_subject
from .node import Device, NodeTopology


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
        name = self._name(node, label)
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

    def _name(self, node: str, label: str) -> str | None:
        """Device name in findings: gpu4, mlx5_0."""
        devices = self._nodes[node].devices if node in self._nodes else ()
        device = next((device for device in devices if device.label == label), None)
        if device is None:
            return None
        return f"gpu{device.info.index}" if device.info else device.name


#: Devices of a reported difference of a whole node.
_NOTHING = ("",)


def _bonded(word: str) -> int | None:
    """Number of NVLinks of a matrix word; None if unknown."""
    number = word.removeprefix("NV")
    return 0 if number == word else int(number) if number.isdecimal() else None
