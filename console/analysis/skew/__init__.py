"""Who comes late, how often, and what it costs the others: on the common clock, with the error of every figure.

`meetings` puts what ranks recorded side by side, `lateness` judges one meeting, `ranking` many of them, `steps` and
`checks` look at ranks that are not where the others are and at the clock itself, `found` says what is worth a finding.
What is closer together than the clocks are good for is `unresolved`: nobody is ranked by noise.
"""

from .consistency import Desync, Violation, desyncs, desyncs_of_steps, violations
from .culprits import RankSkew, Skew, skew
from .findings import find
from .lateness import Lateness, lateness
from .steps import Walk, step_meetings
from .sync_points import Arrival, Meeting, meetings

__all__ = [
    "Arrival",
    "Desync",
    "Lateness",
    "Meeting",
    "RankSkew",
    "Skew",
    "Violation",
    "Walk",
    "desyncs",
    "desyncs_of_steps",
    "find",
    "lateness",
    "meetings",
    "skew",
    "step_meetings",
    "violations",
]
