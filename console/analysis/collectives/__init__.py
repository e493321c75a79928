"""What ranks' communication libraries recorded, made sense of: who is missing from which collective, who does something
else than the others, who waits for whom, who gives how much to whom.

`groups` aligns the records, `faults` says what is wrong (`absences`, `mismatches`), `waiting` which causes which,
`counts` what is told by those who only count; `traffic` and `load` are about what went well. Everything refuses, and
says why, where the records do not carry an answer.
"""

from .align import Member, ProcessGroup
from .communication import Communication, communication
from .detect import LEAST_WAIT_S
from .fault import Fault, FaultKind, MismatchSide
from .performance import Imbalance, Load, SlowLink, SlowLinks, Statistics
from .traffic import PatternFound, TrafficCell, TrafficMatrix
from .wait_graph import Wait, WaitGraph

__all__ = [
    "LEAST_WAIT_S",
    "Communication",
    "Fault",
    "FaultKind",
    "Imbalance",
    "Load",
    "Member",
    "MismatchSide",
    "PatternFound",
    "ProcessGroup",
    "SlowLink",
    "SlowLinks",
    "Statistics",
    "TrafficCell",
    "TrafficMatrix",
    "Wait",
    "WaitGraph",
    "communication",
]
