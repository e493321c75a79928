"""Straggler analysis on the common clock: which ranks arrive late, how often, at what cost, with error bounds.

`sync_points` aligns the ranks' records, `lateness` evaluates one sync point, `culprits` aggregates them, `steps` and
`consistency` detect desynchronised ranks and clock violations. Differences within the clock error are `unresolved`.
"""

from .consistency import Desync, Violation, desyncs, desyncs_of_steps, violations
from .culprits import JobSkew, RankSkew, skew_by_job
from .findings import skew_findings
from .lateness import Lateness, lateness
from .steps import StepProgress, step_sync_points
from .sync_points import Arrival, SyncPoint, sync_points

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
