"""Labelled jobs, run live: one command on real sshd nodes identifies the culprit of an unprepared job."""

from pathlib import Path

import pytest
from program import batch
from rig import Rig

from .labels import JOBS, Label, LabelledJob
from .live_jobs import graded_live, lacks_modules, running

LIVE = [job for job in JOBS if job.live]
#: Run by `make test`; their recordings and those of the others are judged in test_recordings.
FAST = {"absent", "asynchronous_and_a_lock"}
OTHERS = [job for job in JOBS if not job.live]


def outcomes_of(rig: Rig, labelled: LabelledJob, folder: Path) -> list[str]:
    """The outcomes, one per job, each with the answer unless it is right."""
    return [
        outcome if outcome == "right" else f"{outcome}: {answer}"
        for _, outcome, answer in graded_live(rig, labelled, folder)
    ]


@pytest.mark.parametrize(
    "labelled",
    [pytest.param(job, id=job.id, marks=() if job.id in FAST else pytest.mark.full) for job in LIVE],
)
def test_diagnose_finds_the_culprit_of_an_uninstrumented_job(
    rig: Rig, needs_torch: None, labelled: LabelledJob, tmp_path: Path
) -> None:
    for outcome in outcomes_of(rig, labelled, tmp_path):
        assert outcome == "right", outcome


def test_job_that_hangs_is_reported_without_being_asked_also_if_it_hung_before_the_console_came(
    rig: Rig, needs_torch: None, tmp_path: Path
) -> None:
    labelled = next(job for job in LIVE if job.id == "sleeps_in_step")
    names = [node.name for node in rig.nodes[: labelled.nodes]]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=names, extra="[watch]\nstall_s = 6\n")
    with running(rig, labelled):
        for watched in (("--for", "12s"), ()):
            run = batch(hosts, *watched, deadline_s=120.0)
            findings = [(line["id"], line["severity"], line["culprits"]) for line in run.report["findings"]]
            assert (run.status, findings) == (1, [("rank_missing", "error", ["rank 1"])]), run.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("all_spin", [("job_stalled", "warning", [])], marks=pytest.mark.full),
        pytest.param("spins_and_trains", [], marks=pytest.mark.full),
    ],
)
def test_job_whose_ranks_all_spin_is_reported_only_if_it_exchanges_no_data(
    rig: Rig, needs_torch: None, tmp_path: Path, name: str, expected: list[tuple[str, str, list[str]]]
) -> None:
    labelled = LabelledJob(name, Label(frozenset({"undecided"}), frozenset({"none"})), nodes=1)
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name], extra="[watch]\nstall_s = 6\n")
    with running(rig, labelled):
        run = batch(hosts, "--for", "40s", deadline_s=120.0)
    findings = [(line["id"], line["severity"], line["culprits"]) for line in run.report["findings"]]
    assert findings == expected, run.stdout


@pytest.mark.full
@pytest.mark.parametrize("labelled", OTHERS, ids=[job.id for job in OTHERS])
def test_live_diagnosis_blames_no_innocent_rank(
    rig: Rig, needs_torch: None, labelled: LabelledJob, tmp_path: Path, live_outcomes: list[tuple[LabelledJob, str]]
) -> None:
    if labelled.needs and (lacking := lacks_modules(labelled)):
        pytest.skip(f"no {lacking} in the jobs' Python")
    for outcome in outcomes_of(rig, labelled, tmp_path):
        live_outcomes.append((labelled, outcome))
        assert not outcome.startswith("wrong"), outcome


@pytest.mark.full
def test_live_diagnosis_is_right_for_90_percent_of_decidable_jobs(
    needs_torch: None, live_outcomes: list[tuple[LabelledJob, str]]
) -> None:
    decidable = [(labelled, outcome) for labelled, outcome in live_outcomes if labelled.label.decidable]
    right = [outcome for _, outcome in decidable if outcome == "right"]
    bad = "\n".join(f"{labelled.id}: {outcome}" for labelled, outcome in decidable if outcome != "right")
    assert decidable, "the jobs ran in this session"
    assert len(right) >= 0.9 * len(decidable), bad
