"""Records of communication libraries, read by a capture over SSH: real torch, real nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, find_torch_python, gloo_environment, start_plain
from jobs.launch import FOLDER
from program import batch, gconsole
from rig import Rig

ABSENT = 2
#: Seconds. Shorter waits are not significant.
LEAST_WAIT_S = 5


def start(rig: Rig, absent: int | None, server: bool = True) -> Job:
    """Four ranks on two nodes, without a launcher, which none of these tests needs."""
    env = {**({"ABSENT": str(absent)} if absent is not None else {}), **({"WORKER_SERVER": "1"} if server else {})}
    return start_plain(rig, FOLDER / "gloo_missing_rank.py", rig.nodes[:2], 2, {**gloo_environment(rig), **env},
                       python=str(find_torch_python()))  # fmt: skip


def hosts_of(rig: Rig, folder: Path, **changes: Any) -> Path:
    """Without automatic diagnoses: on a busy machine the job has stood still for 30 s before the capture begins."""
    only = [node.name for node in rig.nodes[:2]]
    return rig.write_hosts_toml(folder / "hosts.toml", only=only, extra="[watch]\nstall_s = 0\n", **changes)


@pytest.fixture(scope="module")
def moving_job(rig: Rig, needs_torch: None) -> Iterator[Job]:
    """A job whose ranks all make steps."""
    with start(rig, None) as job:
        job.wait_ready()
        yield job


def capture_waiting(hosts: Path, *more: object) -> Any:
    """A capture once the ranks have waited longer than the threshold."""
    return batch(hosts, "--for", f"{LEAST_WAIT_S + 2}s", "--capture", "--samples", "1", *more)


def test_rank_missing_from_a_collective_is_reported(rig: Rig, tmp_path: Path, needs_torch: None) -> None:
    hosts = hosts_of(rig, tmp_path)
    with start(rig, ABSENT) as job:
        job.wait_ready()
        run = capture_waiting(hosts, "--records", tmp_path / "records")
    assert run.status == 0, run.stderr
    collectives = run.report["collectives"]
    [fault] = collectives["faults"]
    assert (fault["kind"], fault["ranks"], fault["waiting"]) == ("missing_rank", [ABSENT], [0, 1, 3])
    assert (fault["op"], fault["seq"], fault["confidence"]) == ("all_reduce", 4, "certain")
    assert fault["waited_s"] >= LEAST_WAIT_S
    [group] = collectives["groups"]
    assert (group["source"], group["ranks"], group["is_whole"]) == ("flight recorder", [0, 1, 2, 3], True)
    assert [member["last_entered"] for member in group["members"]] == [4, 4, 3, 4]
    assert collectives["waits"][0]["causes"] == [ABSENT]
    assert "names a pair" in collectives["matrix"][0]["refused"]
    assert f"which [{ABSENT}] has not entered" in run.stdout
    again = gconsole("batch", "--from", tmp_path / "records")
    assert again.stdout == run.stdout


def test_job_without_collective_records_is_still_captured(rig: Rig, tmp_path: Path, needs_torch: None) -> None:
    with start(rig, ABSENT, server=False) as job:
        job.wait_ready()
        run = capture_waiting(hosts_of(rig, tmp_path))
    assert run.status == 0, run.stderr
    assert not any(run.report["collectives"].values())
    assert len(run.report["captures"][0]["read"]) == 4
    assert "collectives" not in run.stdout


def test_process_groups_of_a_capture_are_mapped_onto_the_topology(rig: Rig, tmp_path: Path, moving_job: Job) -> None:
    hosts = hosts_of(rig, tmp_path, agent={"simulate_gpus": 2})
    run = capture_waiting(hosts, "--records", tmp_path / "records")
    assert run.status == 0, run.stderr

    topology = json.loads(gconsole("topo", "--from", tmp_path / "records", "--format", "json").stdout)

    [group] = topology["groups"]
    assert (group["kind"], group["ranks"], group["is_whole"]) == ("default_pg", [0, 1, 2, 3], True)
    assert (group["nodes"], group["relation"]) == (["node1", "node2"], None)
    on = {(node["node"], device["label"]): (device["ranks"], device["groups"])
          for node in topology["nodes"] for device in node["devices"] if device["kind"] == "gpu"}  # fmt: skip
    assert on["node2", "GPU1"] == ([3], ["default_pg"])
    assert "default_pg  1 group of 4 ranks" in gconsole("topo", "--from", tmp_path / "records").stdout


def test_job_making_progress_has_no_collective_faults(rig: Rig, tmp_path: Path, moving_job: Job) -> None:
    run = capture_waiting(hosts_of(rig, tmp_path))
    assert run.status == 0, run.stderr
    collectives = run.report["collectives"]
    assert collectives["groups"][0]["is_whole"]
    assert collectives["faults"] == []
