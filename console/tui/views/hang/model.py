"""Diagnosed jobs of the Hang view: their order, verdict lines and culprits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....present import verdict as present
from ....present.spans import Line, plain
from ...derived import JobDiagnosis

_ORDER: Final = tuple(present.VERDICT_STATUS)


def worst_first(jobs: Sequence[JobDiagnosis]) -> list[JobDiagnosis]:
    """Hung jobs first."""
    return sorted(jobs, key=lambda job: (_ORDER.index(job.judgement.verdict.state), job.job))


def verdict_lines(jobs: Sequence[JobDiagnosis], width: int) -> tuple[Line, ...]:
    """The verdicts of all jobs, the worst first, separated by an empty line."""
    lines: list[Line] = []
    for job in worst_first(jobs):
        lines += [plain("")] if lines else []
        lines += present.verdict_lines(job.judgement.verdict, width, watched_s=job.judgement.watched_s)
    return tuple(lines)


def culprits_of(job: JobDiagnosis | None) -> tuple[int, ...]:
    """The ranks that the verdict names."""
    culprits = job.judgement.verdict.culprits if job else ()
    return tuple(culprit.rank for culprit in culprits if culprit.rank is not None)
