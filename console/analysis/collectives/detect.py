"""What is wrong between the ranks of a group: somebody has not come, or they do different things at one number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .align import ProcessGroup
from .fault import Fault
from .mismatch import mismatches
from .missing import absence, unlaunched

#: A wait shorter than this is no fault: ranks of a job that moves are apart by as much, seconds.
LEAST_WAIT_S: Final = 5.0


def faults_of(groups: Iterable[ProcessGroup], least_wait_s: float = LEAST_WAIT_S) -> list[Fault]:
    """Everything that is wrong in these groups, mismatches before absences; `waiting.ordered` says what follows."""
    found = []
    for group in groups:
        found += mismatches(group)
        missing = unlaunched(group) if group.witness == "NCCL log" else absence(group, least_wait_s)
        if missing is not None:
            found.append(missing)
    return found
