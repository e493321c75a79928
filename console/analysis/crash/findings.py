"""The finding of a crash verdict."""

from __future__ import annotations

from typing import Final

from ..finding import FindingDraft
from .verdict import CrashVerdict

#: Victims in a finding; the verdict has all of them.
MOST_VICTIMS: Final = 4_096


def crash_finding(verdict: CrashVerdict) -> FindingDraft:
    """The finding of a verdict. Its id is that verdict's kind; an error; a warning if the job was ended on purpose."""
    culprits = tuple(
        f"rank {culprit.rank}" if culprit.rank is not None else str(culprit.node)
        for culprit in verdict.culprits
        if culprit.rank is not None or culprit.node is not None
    )
    return FindingDraft(
        id=verdict.kind,
        severity="warning" if verdict.is_deliberate else "error",
        confidence=verdict.confidence,
        culprits=culprits,
        text=f"{verdict.job}: {verdict.summary}",
        evidence=verdict.evidence,
        victims=tuple(f"rank {rank}" for rank in verdict.victims[:MOST_VICTIMS]),
        job=verdict.job,
    )
