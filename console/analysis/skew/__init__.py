"""Who comes late, how often, and what it costs the others: on the common clock, with the error of every figure.

`sync_points` puts what ranks recorded side by side, `lateness` judges one meeting, `ranking` many of them, `steps` and
`checks` look at ranks that are not where the others are and at the clock itself, `found` says what is worth a finding.
What is closer together than the clocks are good for is `unresolved`: nobody is ranked by noise.
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
