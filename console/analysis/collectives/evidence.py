"""Collective evidence for a verdict: missing ranks and mismatches, the cause first.

Only proven absences count: a rank has waited long enough, and sequence numbers prove which rank is missing. Launch
counts (RAS, NCCL's log) do not: a rank whose GPU waits launches less without being the cause.
"""

from __future__ import annotations

from ..hang.evidence import Absence, CollectiveEvidence, Mismatch
from .communication import Communication
from .fault import Fault


def evidence_of(capture: Communication) -> tuple[CollectiveEvidence, ...]:
    """The evidence of each source that covers any rank."""
    return tuple(
        CollectiveEvidence(
            source=witness,
            complete=ranks,
            absences=tuple(_absence(fault) for fault in capture.faults if fault.witness == witness and _proves(fault)),
            mismatches=tuple(
                Mismatch(fault.title, fault.seq, tuple((side.what, side.ranks) for side in fault.sides))
                for fault in capture.faults if fault.witness == witness and _differs(fault)
            ),
        )
        for witness, ranks in capture.heard if witness != "NCCL Inspector"
    )  # fmt: skip


def _proves(fault: Fault) -> bool:
    """Whether an absence is proven and does not follow from another one."""
    proven = fault.kind == "missing_rank" and fault.confidence in ("certain", "likely")
    return proven and fault.seq is not None and not fault.follows


def _differs(fault: Fault) -> bool:
    """Whether the sides are complete: else the minority may be the majority."""
    is_even = len({len(side.ranks) for side in fault.sides}) == 1
    return len(fault.sides) > 1 and (bool(fault.ranks) or is_even)


def _absence(fault: Fault) -> Absence:
    held = {rank for rank, _ in fault.held}
    ranks = tuple(rank for rank in fault.ranks if rank not in held)
    return Absence(fault.title, fault.op, fault.seq, ranks, fault.waiting)
