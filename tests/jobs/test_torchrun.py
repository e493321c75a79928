"""Real torchrun jobs on real nodes: they start, end, fail and are stopped, and leave no processes."""

from pathlib import Path

import pytest
from jobs import find_torch_python
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, follow_until, list_jobs, processes_of, run, start_job

pytestmark = pytest.mark.usefixtures("needs_torch")


def job_options(folder: str, *script: object, nodes: int = 2, procs: int = 2) -> list[object]:
    return ["--nodes", nodes, "--procs-per-node", procs, "--workdir", folder, *TORCH_OPTIONS, "--",
            find_torch_python(), "train.py", *script]  # fmt: skip


def test_start_follow_prints_every_step_and_the_end_of_the_job(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    folder = script("train.py", TRAIN)
    result = run("start", hosts, "--yes", "--follow", *job_options(folder, 5, -1, "well"))
    assert result.status == 0, result.stdout + result.stderr
    for step in range(5):
        assert f"step {step} sum 4" in result.stdout  # folded or not, depending on when lines arrive
    assert "node[1-2]  completed" in result.stderr
    [job] = [job for job in list_jobs(hosts) if job["state"] == "completed"]
    assert run("wait", hosts, job["job"]).status == 0
    assert processes_of(rig, "train.py") == []
    again = run("logs", hosts, job["job"], "--rank", "0-3", "--grep", "step 4")
    assert again.stdout == "[0-3] step 4 sum 4\n"
    saved = tmp_path / "output.txt"
    assert run("logs", hosts, job["job"], "-o", saved).status == 0
    assert {f"[0-3] step {step} sum 4" for step in range(5)} <= set(saved.read_text().splitlines())
    fetched = run("fetch", hosts, job["job"], "result.txt", "-o", tmp_path / "back")
    assert (tmp_path / "back/node1/result.txt").read_text() == "sum 4"
    assert fetched.status == 3, "only the node of rank 0 has it, and the message lists the others"
    assert "node2: " in fetched.stderr


def test_failed_rank_is_reported_with_its_node_and_exit_code(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    folder = script("train.py", TRAIN)
    job = start_job(hosts, *job_options(folder, 10_000, 3, "fail"))
    result = run("wait", hosts, job, "--timeout", "100s")
    assert result.status == 1, "torchrun's exit status for a failed rank"
    assert f"{job}  failed, exit code 1" in result.stderr
    assert "first on node2: rank 3 (local rank 1) ended with exit code 5; its last line: out of luck" in result.stderr
    output = run("logs", hosts, job).stdout
    assert "[3] out of luck" in output
    assert "exitcode  : 5" in output, "the launcher's own report of the rank is included"
    assert processes_of(rig, "train.py") == []


@pytest.mark.full
def test_rank_ignoring_sigterm_is_killed_by_stop_with_no_processes_left(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    folder = script("train.py", TRAIN)
    job = start_job(hosts, *job_options(folder, 10_000, 1, "ignore", procs=1))
    follow_until(hosts, job, "step 3 ")
    [listed_job] = [the_job for the_job in list_jobs(hosts) if the_job["job"] == job]
    assert listed_job["state"] == "running"
    result = run("stop", hosts, job, "--yes", "--grace", "2s")
    assert result.status == 0, result.stdout + result.stderr
    assert result.stdout.count("nothing left") == 2
    assert processes_of(rig, "train.py") == []
    assert processes_of(rig, "supervisor.py") == []
    assert run("wait", hosts, job).status != 0
    [listed_job] = [the_job for the_job in list_jobs(hosts) if the_job["job"] == job]
    assert listed_job["state"] == "stopped"
