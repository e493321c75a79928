"""The differences of nodes as findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...text.nodeset_fold import fold
from ..finding import FindingDraft
from .classes import Aspect, Difference, NodeClass
from .dedup import ReportedFindings

#: The id of all of them.
DIFFERS: Final = "topology_differs"
#: The record that a difference is read from.
_RECORD: dict[Aspect, str] = {
    "devices": "gpu_info", "relation": "link", "numa": "link.b", "pcie": "link.width", "driver": "gpu_info.driver",
    "vbios": "gpu_info.vbios", "limit": "gpu_info", "mode": "gpu_info", "nic": "nic",
}  # fmt: skip


def differences_found(classes: Sequence[NodeClass], told: ReportedFindings | None = None) -> tuple[FindingDraft, ...]:
    """Every difference as a finding, those of the same culprits as one; without what is `told` already.

    A machine of another kind is no fault, and is told as information; so is a difference without a majority on the
    other side.
    """
    told = told or ReportedFindings()
    said: dict[tuple[str, ...], list[tuple[Difference, NodeClass]]] = {}
    for made in classes:
        for whole in (*made.differences, *made.odd):
            for difference in told.untold(whole):
                said.setdefault(_culprits(difference, made), []).append((difference, made))
    return tuple(_found(culprits, those, classes) for culprits, those in said.items())


def _found(
    culprits: tuple[str, ...], those: Sequence[tuple[Difference, NodeClass]], classes: Sequence[NodeClass]
) -> FindingDraft:
    sim = "SIM " if any(made.model.simulated for _, made in those) else ""
    is_fault = any(one[0].is_minority and not _is_foreign(*one, classes) for one in those)
    return FindingDraft(
        id=DIFFERS,
        severity="warning" if is_fault else "info",
        confidence="certain" if any(difference.is_minority for difference, _ in those) else "possible",
        culprits=culprits,
        text=f"{sim}{fold(those[0][0].nodes)}: " + "; ".join(difference.phrase for difference, _ in those),
        evidence=tuple(f"{sim}{_RECORD[difference.aspect]} {difference.text}" for difference, _ in those),
    )


def _compared(difference: Difference, classes: Sequence[NodeClass]) -> NodeClass | None:
    """The class that it is compared with; None for the rest of its own."""
    return next((made for made in classes if difference.than == f"class {made.name}"), None)


def _is_foreign(difference: Difference, made: NodeClass, classes: Sequence[NodeClass]) -> bool:
    """Whether it is a machine of another kind: with other GPUs, not with fewer."""
    other = _compared(difference, classes)
    return other is not None and {gpu.name for gpu in other.model.gpus} != {gpu.name for gpu in made.model.gpus}


def _culprits(difference: Difference, made: NodeClass) -> tuple[str, ...]:
    """The devices where the difference is one of theirs, else the nodes."""
    if not difference.devices or difference.aspect in ("relation", "devices"):
        return difference.nodes
    names = {device.label: f"gpu{device.info.index}" if device.info else device.name for device in made.model.devices}
    return tuple(f"{node}:{names.get(label, label)}" for node in difference.nodes for label in difference.devices)
