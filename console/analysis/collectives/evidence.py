"""What collectives say for a verdict: who is missing from what, who differs from whom, the cause first.

Only what holds in a job that stands still is said: somebody has waited long enough, and the sequence numbers prove who
has not come. Counts of launches (RAS, NCCL's log) do not: a rank whose GPU waits launches less, and is not to blame.
"""

from __future__ import annotations

from ..hang.evidence import Absence, CollectiveEvidence, Mismatch
from .communication import Communication
from .fault import Fault


def evidence_of(said: Communication) -> tuple[CollectiveEvidence, ...]:
    """One piece of evidence a witness that has spoken of any rank."""
    return tuple(
        CollectiveEvidence(
            source=witness,
            complete=ranks,
            absences=tuple(_absence(fault) for fault in said.faults if fault.witness == witness and _proves(fault)),
            mismatches=tuple(
                Mismatch(fault.title, fault.seq, tuple((camp.what, camp.ranks) for camp in fault.camps))
                for fault in said.faults if fault.witness == witness and _differs(fault)
            ),
        )
        for witness, ranks in said.heard if witness != "NCCL Inspector"
    )  # fmt: skip


def _proves(fault: Fault) -> bool:
    """Whether an absence is more than a moment's difference, and not merely what follows from another one."""
    proven = fault.kind == "missing_rank" and fault.confidence in ("certain", "likely")
    return proven and fault.seq is not None and not fault.follows


def _differs(fault: Fault) -> bool:
    """Whether there are camps, and all that could be in one are: else the smaller may be the larger."""
    is_even = len({len(camp.ranks) for camp in fault.camps}) == 1
    return len(fault.camps) > 1 and (bool(fault.ranks) or is_even)


def _absence(fault: Fault) -> Absence:
    held = {rank for rank, _ in fault.held}
    ranks = tuple(rank for rank in fault.ranks if rank not in held)
    return Absence(fault.title, fault.op, fault.seq, ranks, fault.waiting)
