"""Labelled jobs that die while the program watches: it names the first cause without being asked."""

from pathlib import Path

import pytest
from rig import Rig

from .labels import JOBS, LabelledJob
from .live_jobs import watched
from .score import answer_of, grade

LIVE = [job for job in JOBS if job.live]
#: In every `make test`; the others of them in `make full`, all of them in `python -m tests.crashes.rounds`.
FAST = {"raises-shared_log", "ends_well-shared_log"}


@pytest.mark.parametrize(
    "labelled", [pytest.param(job, id=job.id, marks=() if job.id in FAST else pytest.mark.full) for job in LIVE]
)
def test_crash_of_an_uninstrumented_job_is_reported_with_its_cause(
    rig: Rig, needs_torch: None, labelled: LabelledJob, tmp_path: Path
) -> None:
    answer = answer_of(watched(rig, labelled, tmp_path))
    assert grade(labelled.label, answer) == "right", answer
