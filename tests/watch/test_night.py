"""How the night draws its jobs and counts alerts; the night itself is a part of the campaign."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crashes.labels import JOBS as CRASHES
from tests.hangs.labels import JOBS as HANGS

from .night import Step, drawn, score

HANG = Step("hang", next(job for job in HANGS if job.id == "sleeps_in_step"))
CRASH = Step("crash", next(job for job in CRASHES if job.id == "file_is_missing"))
HEALTHY = Step("healthy", next(job for job in HANGS if job.id == "moving"))


def alert(*culprits: str, event: str = "open", job: str | None = "a job") -> dict[str, Any]:
    return {"event": event, "finding": {"id": "rank_missing", "culprits": list(culprits), "job": job}}


def with_alerts(step: Step, *alerts: dict[str, Any]) -> Step:
    return Step(step.kind, step.job, list(alerts))


def test_night_is_the_same_for_the_same_seed_and_has_a_healthy_job_after_each_fault() -> None:
    steps = drawn(40, seed=7)
    assert [step.job.id for step in steps] == [step.job.id for step in drawn(40, seed=7)]
    assert [step.job.id for step in steps] != [step.job.id for step in drawn(40, seed=8)]
    assert all(step.kind != "healthy" for step in steps[::2])
    assert all(step.kind == "healthy" for step in steps[1::2])
    assert len({(step.kind, step.job.id) for step in steps if step.kind in ("hang", "crash")}) == 32


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (with_alerts(HANG, alert("rank 1")), "right"),
        (with_alerts(HANG, alert(), alert("rank 1", event="update")), "right"),
        (with_alerts(HANG, alert()), "unnamed"),
        (with_alerts(HANG, alert("rank 0")), "wrong"),
        (with_alerts(HANG, alert("rank 1"), alert("rank 0", "rank 1", event="update")), "wrong"),
        (with_alerts(HANG, alert("rank 1"), alert("rank 1")), "doubled"),
        (with_alerts(HANG, alert("rank 1"), alert("node1", job=None)), "wrong"),
        (with_alerts(HANG), "missed"),
        (with_alerts(CRASH, alert()), "right"),
        (with_alerts(CRASH, alert("rank 0", "rank 1", "rank 2", "rank 3")), "right"),
        (with_alerts(HEALTHY), "quiet"),
        (with_alerts(HEALTHY, alert()), "false"),
    ],
)
def test_outcome_of_a_job(step: Step, outcome: str) -> None:
    assert step.outcome == outcome


@pytest.mark.parametrize(
    ("bad", "is_passed"),
    [
        (HEALTHY, True),
        (with_alerts(HANG), False),
        (with_alerts(HANG, alert("rank 0")), False),
        (with_alerts(HANG, alert("rank 1"), alert("rank 1")), False),
        (with_alerts(HEALTHY, alert()), False),
        (Step("healthy", HEALTHY.job, problem="did not start"), False),
    ],
)
def test_night_passes_only_without_any_wrong_missed_doubled_or_false_alert(bad: Step, is_passed: bool) -> None:
    text, passed = score([with_alerts(HANG, alert("rank 1")), bad], hours=0.1)
    assert passed == is_passed, text
