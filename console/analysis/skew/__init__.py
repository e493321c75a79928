"""Straggler analysis on the common clock: which ranks arrive late, how often, at what cost, with error bounds.

`sync_points` aligns the ranks' records, `lateness` evaluates one sync point and aggregates them, `consistency` detects
desynchronised ranks and clock violations. Differences within the clock error are `unresolved`.
"""

from .consistency import Desync, Violation, desyncs, desyncs_of_steps, violations
from .findings import skew_findings
from .lateness import JobSkew, Lateness, RankSkew, lateness, skew_by_job
from .sync_points import Arrival, StepProgress, SyncPoint, step_sync_points, sync_points

__all__ = [
    "Arrival",
    "Desync",
    "JobSkew",
    "Lateness",
    "RankSkew",
    "StepProgress",
    "SyncPoint",
    "Violation",
    "desyncs",
    "desyncs_of_steps",
    "lateness",
    "skew_by_job",
    "skew_findings",
    "step_sync_points",
    "sync_points",
    "violations",
]
