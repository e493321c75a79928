"""Attaching to running jobs: agents as steps of a Slurm job and as processes in pods, without SSH.

The commands are fakes over the rig's nodes (`scheduler.py`); the agents, the nodes and the jobs are real.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from program import Run, gconsole
from rig import Rig
from scheduler import Scheduler

from gconsole.config.model import PodExec
from gconsole.core.bus import Hub
from gconsole.fleet import pod_events
from gconsole.transport import errors
from gconsole.transport.site_exec import failure_of, pod_argv, step_argv

pytestmark = pytest.mark.usefixtures("needs_namespaces")


@pytest.fixture
def site(rig: Rig, tmp_path: Path) -> Scheduler:
    folder = tmp_path / "site"
    folder.mkdir()
    return Scheduler(folder, {node.name: node.outer_pid(1) for node in rig.nodes})


def watched(site: Scheduler, target: str, tmp_path: Path, *args: object) -> Run:
    report = tmp_path / "report.json"
    run = gconsole("batch", target, "-o", report, *args, env=site.environment)
    return Run(run.status, run.stdout, run.stderr, json.loads(report.read_text()) if report.exists() else {})


def test_slurm_job_is_watched_through_job_steps_without_ssh(site: Scheduler, rig: Rig, tmp_path: Path) -> None:
    site.job("4711", "node[1-3]")

    run = watched(site, "slurm:4711", tmp_path)

    assert run.status == 0, run.stderr
    assert [(node["node"], node["state"]) for node in run.report["nodes"]] == [
        ("node1", "ok"), ("node2", "ok"), ("node3", "ok"),
    ]  # fmt: skip
    assert {node["hostname"] for node in run.report["nodes"]} == {"node1", "node2", "node3"}
    assert all(node.logins() == 0 for node in rig.nodes), "nobody logged in"
    for node in rig.nodes:
        assert not [line for line in node.ps().splitlines() if "gconsole" in line]


def test_node_that_takes_no_step_costs_only_itself(site: Scheduler, tmp_path: Path) -> None:
    site.job("4711", "node[1-4]", down=["node3"])

    run = watched(site, "slurm:4711", tmp_path)

    assert run.status == 3
    assert {node["node"]: node["state"] for node in run.report["nodes"]} == {
        "node1": "ok", "node2": "ok", "node3": "failed", "node4": "ok",
    }  # fmt: skip
    [error] = [node["error"] for node in run.report["nodes"] if node["error"]]
    assert error["name"] == "job_ended"
    assert "Requested node configuration is not available" in error["text"]
    assert [finding["id"] for finding in run.report["findings"]] == []


def test_python_that_is_missing_on_all_nodes_is_an_error_of_each(site: Scheduler, tmp_path: Path) -> None:
    site.job("4711", "node[1-2]")

    run = watched(site, "slurm:4711", tmp_path, "--set", "agent.python=/no/such/python")

    assert [node["error"]["name"] for node in run.report["nodes"]] == ["no_python", "no_python"]
    assert [finding["id"] for finding in run.report["findings"] if finding["id"] == "gateway_lost"] == []


def test_slurm_step_exports_only_home_path_and_user(site: Scheduler) -> None:
    argv = step_argv("4711", ["node1", "node2"], "env")
    exported = next(argument for argument in argv if argument.startswith("--export="))

    assert "SECRET_OF_THE_LOGIN_NODE" in site.environment
    assert exported == "--export=HOME,PATH,USER"


def test_stacks_are_captured_over_a_slurm_step(site: Scheduler, rig: Rig, tmp_path: Path) -> None:
    site.job("4711_2", "node[2-3]")
    script = "def wait_for_the_others():\n    import time; time.sleep(600)\nwait_for_the_others()"
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    process = rig.nodes[1].run([rig.nodes[1].output(["sh", "-c", "command -v python3"]).strip(), "-c", script], env=env)
    try:
        run = watched(site, "slurm:4711_2", tmp_path, "--capture")
    finally:
        process.kill()
        process.wait()

    assert "wait_for_the_others" in json.dumps(run.report), run.stderr


def test_run_refuses_to_start_jobs_on_an_attached_slurm_job(site: Scheduler) -> None:
    site.job("4711", "node[1-2]")
    argv = ["--nodes", "2", "--gpus-per-node", "0", "--procs-per-node", "1", "--launcher", "env", "--", "true"]

    for command in (["plan", "slurm:4711"], ["start", "slurm:4711", "--yes"]):
        run = gconsole("run", *command, *argv, env=site.environment)
        assert run.status == 1, run.stderr
        wanted = "attached: the node belongs to the site's scheduler; start jobs there with sbatch or kubectl apply"
        assert wanted in run.stdout


def test_running_pods_are_watched_and_pending_ones_are_reported(site: Scheduler, tmp_path: Path) -> None:
    labels = {"job-name": "llama"}
    site.pod("llama-worker-0", "node1", labels)
    site.pod("llama-worker-1", "node2", labels)
    site.pod("llama-worker-2", "node3", labels, phase="Pending")
    site.pod("other-0", "node4", {"job-name": "other"})

    run = watched(site, "k8s:training/job-name=llama", tmp_path)

    assert run.status == 0, run.stderr
    assert [node["node"] for node in run.report["nodes"]] == ["llama-worker-0", "llama-worker-1"]
    assert {node["state"] for node in run.report["nodes"]} == {"ok"}
    assert "pod llama-worker-2 is pending; left out" in run.stderr


def test_events_and_restarts_of_pods_are_events_with_their_time(site: Scheduler, tmp_path: Path) -> None:
    labels = {"job-name": "llama"}
    for number in range(2):
        site.pod(f"llama-worker-{number}", f"node{number + 1}", labels)
    at = datetime.now(UTC) - timedelta(minutes=37)
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    site.event("llama-worker-0", "Unhealthy", "Liveness probe failed: \x1b[2Jtimeout", stamp, count=3)
    site.event("other-0", "Evicted", "The node was low on resource: memory.", stamp)
    site.event("llama-worker-1", "BackOff", "very old", "2001-01-01T00:00:00Z")
    site.restarts("llama-worker-1", 2, reason="OOMKilled", exitCode=137, finishedAt=stamp)

    records = tmp_path / "records.ndjson"
    run = watched(site, "k8s:training/job-name=llama", tmp_path, "--for", "4s", "--records", records)

    assert run.status == 0, run.stderr
    logs = [record for line in records.open() if (record := json.loads(line))["kind"] == "log"]
    found = {(log["node"], log["fault"], log["text"]) for log in logs if log["source"] == "kubernetes"}
    assert found == {
        ("llama-worker-0", "probe_failed", "Unhealthy: Liveness probe failed: ·[2Jtimeout (3 times)"),
        ("llama-worker-1", "container_oom",
         "container trainer was restarted 2 times, the last time: OOMKilled, exit code 137"),
    }  # fmt: skip
    assert all(log["is_earlier"] and abs(log["at"] / 1e9 - at.timestamp()) < 2 for log in logs if log["at"] and
               log["source"] == "kubernetes")  # fmt: skip


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo not json", "yes x", "echo '{\"items\": [{\"reason\": 7}]}'",
     "echo 'Error from server (Forbidden)' >&2; exit 1", "exec sleep 60", "printf '[%.0s' $(seq 5000)"],
)  # fmt: skip
def test_kubectl_that_fails_costs_only_the_events(
    site: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(pod_events, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(pod_events, "MAX_BYTES", 1 << 20)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{script}\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hub, logs = Hub(), list[Any]()

    async def ask() -> None:
        failed = asyncio.Event()
        hub.subscribe(lambda records: (logs.extend(records), failed.set()))
        events = pod_events.PodEvents(hub, [PodExec("training", "llama-0", "trainer")])
        events.start()
        async with asyncio.timeout(30):
            await failed.wait()
        await events.stop()

    asyncio.run(ask())
    assert {(log.source, log.severity, bool(log.try_)) for log in logs} == {("console", "info", True)}
    assert all(len(log.text) < 500 for log in logs)


def test_pod_without_exec_permission_suggests_the_missing_verb(site: Scheduler, tmp_path: Path) -> None:
    site.pod("llama-worker-0", "node1", {"job-name": "llama"})
    site.forbid()

    run = watched(site, "k8s:training/job-name=llama", tmp_path)

    assert run.status == 4
    (node,) = run.report["nodes"]
    assert 'cannot create resource "pods/exec"' in node["error"]["text"]
    assert node["error"]["try"] == "ask for the verb create on pods/exec in that namespace"


@pytest.mark.parametrize(("target", "words"), [
    ("slurm:99", "squeue: slurm_load_jobs error: Invalid job id specified; squeue --me lists your jobs"),
    ("slurm:5000", "job 5000 is pending; it has no nodes yet; attach when it is running"),
    ("slurm:12;reboot", "'12;reboot' is not a Slurm job id"),
    ("slurm:", "'' is not a Slurm job id"),
    ("k8s:training/job-name=none", "no running pod of training/job-name=none"),
    ("k8s:training/job-name=waits", "no running pod of training/job-name=waits; 1 found, none is running"),
    ("k8s:training", "write k8s:NAMESPACE/SELECTOR"),
    ("k8s:--kubeconfig=x/a=b", "is not NAMESPACE/SELECTOR"),
])  # fmt: skip
def test_invalid_attach_target_is_reported_in_one_line(
    site: Scheduler, tmp_path: Path, target: str, words: str
) -> None:
    site.job("5000", "", state="PENDING")
    site.pod("slow-0", "node1", {"job-name": "waits"}, phase="Pending")

    run = watched(site, target, tmp_path)

    assert run.status == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_missing_squeue_suggests_a_login_node(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path)}
    run = gconsole("batch", "slurm:1", "--for", "1s", env=env)

    assert run.status == 2
    assert "`squeue` is not installed here; run gconsole on a login node of the site" in run.stderr


@pytest.mark.parametrize(("message", "kind"), [
    ("srun: error: Unable to confirm allocation for job 7: Invalid job id specified", errors.JobEnded),
    ("srun: error: Unable to create step for job 7: Job/step already completing or completed", errors.JobEnded),
    ("srun: error: Unable to create step for job 7: Requested node configuration is not available",
     errors.NodeNotInJob),
    ("srun: error: Unable to create step for job 7: Access/permission denied", errors.NoPermission),
    ("srun: error: Task launch for StepId=7.1 failed on node node3: Communication connection failure",
     errors.TaskNotLaunched),
    ('Error from server (NotFound): pods "a" not found', errors.JobEnded),
    ("error: cannot exec into a container in a completed pod; current phase is Succeeded", errors.JobEnded),
    ("Unable to connect to the server: dial tcp: lookup k8s: no such host", errors.ConnectionRefused),
])  # fmt: skip
def test_scheduler_errors_are_mapped_to_fleet_errors(message: str, kind: type[errors.FleetError]) -> None:
    failure = failure_of(1, f"some notice\n{message}\n")

    assert type(failure) is kind
    assert message in str(failure)
    assert failure.try_


def test_remote_command_errors_are_not_scheduler_errors() -> None:
    assert failure_of(127, "sh: 1: python3: not found\ncommand terminated with exit code 127\n") is None


def test_command_is_passed_to_the_remote_shell_as_one_argument() -> None:
    command = "exec python3 -c 'import sys; print(\"$HOME\")'"

    assert step_argv("1", ["node1"], command)[-3:] == ["/bin/sh", "-c", command]
    assert pod_argv(PodExec("training", "llama-0", "trainer"), command)[-3:] == ["/bin/sh", "-c", command]
