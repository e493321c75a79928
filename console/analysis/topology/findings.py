"""Topology differences as findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...text.nodeset_fold import fold
from ..finding import FindingDraft
from .classes import Aspect, Difference, NodeClass
from .dedup import ReportedFindings

#: Finding id.
DIFFERS: Final = "topology_differs"
#: Source record field of each aspect.
_RECORD: dict[Aspect, str] = {
    "devices": "gpu_info", "relation": "link", "numa": "link.b", "pcie": "link.width", "driver": "gpu_info.driver",
    "vbios": "gpu_info.vbios", "limit": "gpu_info", "mode": "gpu_info", "nic": "nic",
}  # fmt: skip


def difference_findings(
    classes: Sequence[NodeClass], reported: ReportedFindings | None = None
) -> tuple[FindingDraft, ...]:
    """One finding per set of culprits, without `reported` differences.

    Severity is info for nodes with other GPU models, and for differences without a majority to compare with.
    """
    reported = reported or ReportedFindings()
    by_culprits: dict[tuple[str, ...], list[tuple[Difference, NodeClass]]] = {}
    for made in classes:
        for whole in (*made.differences, *made.odd):
            for difference in reported.unreported(whole):
                by_culprits.setdefault(_culprits(difference, made), []).append((difference, made))
    return tuple(_finding(culprits, those, classes) for culprits, those in by_culprits.items())


def _finding(
    culprits: tuple[str, ...], those: Sequence[tuple[Difference, NodeClass]], classes: Sequence[NodeClass]
) -> FindingDraft:
    sim = "SIM " if any(made.model.simulated for _, made in those) else ""
    is_fault = any(entry[0].is_minority and not _is_foreign(*entry, classes) for entry in those)
    return FindingDraft(
        id=DIFFERS,
        severity="warning" if is_fault else "info",
        confidence="certain" if any(difference.is_minority for difference, _ in those) else "possible",
        culprits=culprits,
        text=f"{sim}{fold(those[0][0].nodes)}: " + "; ".join(difference.phrase for difference, _ in those),
        evidence=tuple(f"{sim}{_RECORD[difference.aspect]} {difference.text}" for difference, _ in those),
    )


def _compared(difference: Difference, classes: Sequence[NodeClass]) -> NodeClass | None:
    """Class that it is compared with; None: its own."""
    return next((made for made in classes if difference.than == f"class {made.name}"), None)


def _is_foreign(difference: Difference, made: NodeClass, classes: Sequence[NodeClass]) -> bool:
    """Whether the nodes have other GPU models than the class they are compared with."""
    other = _compared(difference, classes)
    return other is not None and {gpu.name for gpu in other.model.gpus} != {gpu.name for gpu in made.model.gpus}


def _culprits(difference: Difference, made: NodeClass) -> tuple[str, ...]:
    """Devices of a device trait, else the nodes."""
    if not difference.devices or difference.aspect in ("relation", "devices"):
        return difference.nodes
    names = {device.label: f"gpu{device.info.index}" if device.info else device.name for device in made.model.devices}
    return tuple(f"{node}:{names.get(label, label)}" for node in difference.nodes for label in difference.devices)
