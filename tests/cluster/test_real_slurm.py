"""`gconsole slurm:JOBID` with Debian's Slurm, whose daemons run on nodes of the rig."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import gconsole
from rig import Rig
from slurm import Slurm, missing

pytestmark = [pytest.mark.usefixtures("needs_namespaces"), pytest.mark.skipif(bool(missing()), reason=missing())]

JOB = """#!/bin/sh
srun --overlap --nodes=2 --ntasks=2 sh -c 'RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=2 exec python3 -c "
def wait_for_the_others():
    import time; time.sleep(600)
wait_for_the_others()"'
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with Rig(nodes=2) as rig, Slurm(rig.nodes, tmp_path / "slurm") as slurm:
        yield slurm


def test_slurm_job_is_captured_and_leaves_no_extra_job_step(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(JOB, nodes=2)
    report = tmp_path / "report.json"

    run = gconsole("batch", f"slurm:{job}", "--for", "5s", "--capture", "-o", report, env=slurm.environment)

    assert report.exists(), run.stderr
    content = json.loads(report.read_text())
    assert [(node["node"], node["state"]) for node in content["nodes"]] == [("node1", "ok"), ("node2", "ok")]
    ranks = {(rank["node"], rank["rank"]) for rank in content["ranks"]}
    assert ranks == {("node1", 0), ("node2", 1)}
    assert "wait_for_the_others" in json.dumps(content["captures"])
    deadline, own = time.monotonic() + 30, [f"{job}.0", f"{job}.batch"]
    while (steps := slurm.ask("squeue", "--steps", "--noheader", "--format=%i").split()) != own:
        assert time.monotonic() < deadline, f"a step is left: {steps}"
        time.sleep(0.2)


def test_cancelled_slurm_job_is_a_usage_error_with_a_hint(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(JOB, nodes=2)
    slurm.ask("scancel", job)
    deadline = time.monotonic() + 30
    while slurm.ask("squeue", "--noheader", "--format=%i").split():
        assert time.monotonic() < deadline, "the job has not ended"
        time.sleep(0.2)

    run = gconsole("batch", f"slurm:{job}", "--for", "1s", env=slurm.environment)

    assert run.status == 2
    assert "Traceback" not in run.stderr
    assert f"{job}" in run.stderr and "squeue --me lists your jobs" in run.stderr


@pytest.mark.full
def test_state_of_job_and_drained_node_in_slurm_are_events(slurm: Slurm, tmp_path: Path) -> None:
    for node in slurm.nodes:
        (node.folder / "etc-slurm").mkdir()
        (node.folder / "etc-slurm/slurm.conf").write_bytes((node.folder / "slurm.conf").read_bytes())
        node.output(["mount", "--bind", f"{node.inside}/etc-slurm", "/etc/slurm"])
    job = slurm.submit(JOB, nodes=2)
    slurm.ask("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=gpu 3 is lost")
    records = tmp_path / "records.ndjson"

    run = gconsole("batch", f"slurm:{job}", "--for", "10s", "--records", records, env=slurm.environment)

    logs = [record for line in records.open() if (record := json.loads(line))["kind"] == "log"]
    found = {(log["node"], log["severity"], log["text"]) for log in logs if log["source"] == "slurm"}
    assert ("node1", "info", f"Slurm job {job}: RUNNING") in found, run.stderr
    [(_, severity, text)] = [entry for entry in found if entry[0] == "node2"]
    assert severity == "warning" and "+DRAIN: gpu 3 is lost (set by root at " in text
