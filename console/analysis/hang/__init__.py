"""Hang diagnosis of one job from records alone: `diagnose_job` returns a verdict, or what evidence is missing.

`evidence` is the input and `verdict` the output. Between them: `samples` and `rank_state` (where each rank is and since
when), `job_view` (which ranks wait), `stillness` (whether the job makes progress), `rules` (the culprit), `cross_check`
(collective records), `wording` (texts). A wrong name costs more than no name: each rule states when it refuses.
"""

from .diagnosis import Judgement, MissingEvidence, diagnose_job
from .evidence import Absence, CollectiveEvidence, Evidence, Mismatch, Still
from .verdict import Coverage, Culprit, Site, Verdict

__all__ = [
    "Absence",
    "CollectiveEvidence",
    "Coverage",
    "Culprit",
    "Evidence",
    "Judgement",
    "Mismatch",
    "MissingEvidence",
    "Site",
    "Still",
    "Verdict",
    "diagnose_job",
]
