"""Who holds a job, told from records alone: `diagnose_job` gives one verdict a job, or says what would decide it.

`evidence` is what goes in, `verdict` what comes out. Between them: `looks` and `standing` say of each rank where it
stands and since when, `scene` who waits and who does not, `stillness` whether anything moves, `rules` whom that blames,
`words` how it is said. A wrong name costs more than no name: each rule says when it refuses.
"""

from .evidence import Absence, CollectiveEvidence, Evidence, Mismatch, Still
from .judge import Judgement, MissingEvidence, diagnose_job
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
