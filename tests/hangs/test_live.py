"""Labelled jobs, run live: one command on real sshd nodes identifies the culprit of an unprepared job."""

from pathlib import Path

import pytest
from program import batch
from rig import Rig

from .labels import JOBS, Labelled
from .live_jobs import arguments, running
from .score import NOTHING, outcome, said_by

LIVE = [job for job in JOBS if job.live]
OTHERS = [job for job in JOBS if not job.live]


def run_and_grade(rig: Rig, labelled: Labelled, folder: Path) -> list[str]:
    """The outcomes, one per job, each with the answer unless it is right."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[: labelled.nodes]])
    with running(rig, labelled):
        run = batch(hosts, *arguments(labelled), deadline_s=120.0)
    found = sorted(run.report["verdicts"], key=lambda verdict: str(verdict["job"]))
    answers = [said_by(verdict) for verdict in found] or [NOTHING]
    outcomes = [(outcome(truth, one), one) for truth, one in zip(labelled.truths, answers, strict=False)]
    return [one if one == "right" else f"{one}: {words}\n{run.stdout}\n{run.stderr}" for one, words in outcomes]


@pytest.mark.parametrize("labelled", LIVE, ids=[one.id for one in LIVE])
def test_diagnose_finds_the_culprit_of_an_uninstrumented_job(
    rig: Rig, needs_torch: None, labelled: Labelled, tmp_path: Path
) -> None:
    for one in run_and_grade(rig, labelled, tmp_path):
        assert one == "right", one


@pytest.mark.full
@pytest.mark.parametrize("labelled", OTHERS, ids=[other.id for other in OTHERS])
def test_live_diagnosis_blames_no_innocent_rank(
    rig: Rig, needs_torch: None, labelled: Labelled, tmp_path: Path, live_outcomes: list[tuple[Labelled, str]]
) -> None:
    for one in run_and_grade(rig, labelled, tmp_path):
        live_outcomes.append((labelled, one))
        assert not one.startswith("wrong"), one


@pytest.mark.full
def test_live_diagnosis_is_right_for_90_percent_of_decidable_jobs(
    needs_torch: None, live_outcomes: list[tuple[Labelled, str]]
) -> None:
    decidable = [(labelled, one) for labelled, one in live_outcomes if labelled.truth.decidable]
    right = [one for _, one in decidable if one == "right"]
    bad = "\n".join(f"{labelled.id}: {one}" for labelled, one in decidable if one != "right")
    assert decidable, "the jobs ran in this session"
    assert len(right) >= 0.9 * len(decidable), bad
