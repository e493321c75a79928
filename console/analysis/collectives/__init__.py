"""Collectives recorded by communication libraries: missing ranks, mismatches, wait-for graph, traffic, performance.

`align` aligns the records, `missing`, `mismatch` and `ras` find faults, `wait_graph` orders them by cause, `traffic`
and `performance` describe what completed. Results carry a reason where the records are not sufficient.
"""

from .align import Member, ProcessGroup
from .communication import LEAST_WAIT_S, Communication, communication
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
