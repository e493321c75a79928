"""Verdicts on the recorded crashes: no wrong name, no alarm for a job that ended well, nine of ten right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gconsole.core.bus import Published
from gconsole.records import Process, Rank

from .labels import JOBS, RECORDINGS, Label, LabelledJob
from .recording import findings_over_time, reported
from .score import Outcome, answer_of, counts, grade

GOAL = 0.9
RECORDED = [job for job in JOBS if (RECORDINGS / f"{job.id}.ndjson.xz").exists()]
OUTCOMES: list[tuple[LabelledJob, Outcome, str]] = []


@pytest.mark.parametrize("labelled", RECORDED, ids=[job.id for job in RECORDED])
def test_verdict_on_a_recorded_crash_names_no_innocent_rank(labelled: LabelledJob, tmp_path: Path):
    answer = answer_of(reported(labelled, tmp_path))
    outcome = grade(labelled.label, answer)
    OUTCOMES.append((labelled, outcome, str(answer)))
    assert outcome != "wrong", answer


def without_exit_codes(record: Published) -> Published:
    """As on a node whose kernel or Python has no pidfds, where parents collect their children at once."""
    if isinstance(record, Rank):
        alive_at = record.ended_at - 1_000_000_000 if record.ended_at is not None else None
        return replace(record, exit_code=None, reason=None, alive_at=alive_at)
    return replace(record, exit_code=None) if isinstance(record, Process) else record


@pytest.mark.parametrize("change", [lambda record: record, without_exit_codes], ids=["", "without_exit_codes"])
@pytest.mark.parametrize("labelled", RECORDED, ids=[job.id for job in RECORDED])
def test_no_innocent_rank_is_named_and_no_alarm_raised_while_records_arrive(
    labelled: LabelledJob, tmp_path: Path, change: Callable[[Published], Published]
):
    label = labelled.label
    allowed = {f"rank {rank}" for rank in label.culprits | label.may_name | labelled.earlier} | {label.node}
    drafts = findings_over_time(labelled, tmp_path, change)
    if not (label.kinds and label.is_error):
        drafts = [draft for draft in drafts if draft.severity == "error"]
        assert not drafts, drafts
    for draft in drafts:
        assert set(draft.culprits) <= allowed, draft.text


def test_nine_of_ten_verdicts_on_recorded_crashes_are_right(
    report_at_end: Callable[[Iterable[str]], None], tmp_path: Path
):
    graded: list[tuple[Label, Outcome]] = [(labelled.label, outcome) for labelled, outcome, _ in OUTCOMES]
    assert graded, "the recordings are judged before"
    by_outcome, share = counts(graded)
    report_at_end([f"{dict(by_outcome)}, {share:.0%} of the decidable ones are right"])
    report_at_end(f"{outcome}: {labelled.id}: {answer}" for labelled, outcome, answer in OUTCOMES if outcome != "right")
    assert share >= GOAL


def test_there_are_thirty_crashes_and_six_jobs_that_end_well_and_all_but_few_are_recorded():
    assert sum(bool(job.label.kinds) for job in JOBS) >= 30
    assert sum(not job.label.kinds for job in JOBS) >= 6
    assert len({job.id for job in JOBS}) == len(JOBS)
    assert len(RECORDED) >= len(JOBS) - 3
