"""A torchrun job that had died, with its launcher, before the console came: its cause is on the first screen."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fork_server import GCONSOLE
from jobs import find_torch_python, gloo_environment
from rig import Node, Rig
from rig.processes import descendants, end

from .live_jobs import SCRIPTS

DEADLINE_S = 90.0
TORCHRUN = ["-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=3", "--master-port=29795"]


def a_job(rig: Rig, node: Node, script: str, folder: str, port: int, *options: str) -> subprocess.Popen[Any]:
    (node.folder / folder).mkdir()
    own = f"{node.inside}/{folder}"
    env = {**gloo_environment(rig), "READY_FOLDER": own, "CHECKPOINTS": own, "LIGHT_TORCH": "ranks", "PER_NODE": "2"}
    argv = [
        str(find_torch_python()), "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2",
        f"--master-addr={node.address}", f"--master-port={port}", "--rdzv-id=past-job", *options,
        str(SCRIPTS / script),
    ]  # fmt: skip
    with (node.folder / folder / "log").open("w") as log:
        return node.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def a_job_with_a_log(node: Node, launcher: list[str], script: str, env: dict[str, str], log: str) -> None:
    """Run a job to its end whose output a shell writes to a file, and which leaves no process behind."""
    line = f"cd /; {shlex.join([str(find_torch_python()), *launcher, str(SCRIPTS / script)])} > {log} 2>&1"
    job = node.run(["bash", "-c", line], env=env, stdin=subprocess.DEVNULL)
    assert end_of(job) != 0


def end_of(job: subprocess.Popen[Any]) -> int:
    """The exit code of a job; killed if it does not end."""
    try:
        return job.wait(DEADLINE_S)
    finally:
        launched = [job.pid, *descendants(job.pid)]
        job.kill()
        job.wait(20)
        end(launched, grace_s=0)


def report(rig: Rig, node: Node, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name])
    argv = [str(GCONSOLE), "batch", str(hosts), "-o", str(folder / "report.json"), *options]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
    return done.returncode, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(
    ("script", "options", "ranks"),
    [
        pytest.param("records_its_error.py", ("--redirects=3",), [1], id="recorded-redirected"),
        pytest.param("chained.py", ("--redirects=3",), [1], id="redirected", marks=pytest.mark.full),
        pytest.param("records_its_error.py", (), [None], id="recorded", marks=pytest.mark.full),
    ],
)
def test_job_that_died_before_is_a_warning_until_it_runs_again(
    rig: Rig, needs_torch: None, tmp_path: Path, script: str, options: tuple[str, ...], ranks: list[int | None]
) -> None:
    node = rig.nodes[0]
    number = len(list(node.folder.glob("past-*")))
    assert end_of(a_job(rig, node, script, f"past-{number}", 29800 + number, *options)) == 1

    code, found = report(rig, node, tmp_path)

    (crash,) = found["crashes"]
    assert (crash["job"], crash["kind"], [culprit["rank"] for culprit in crash["culprits"]]) == (
        "past-job", "exception", ranks,
    )  # fmt: skip
    assert "before the console came" in crash["summary"]
    assert [finding["severity"] for finding in found["findings"] if finding["id"] == "exception"] == ["warning"]
    assert code == 0
    assert report(rig, node, tmp_path, "--fail-on", "warning")[0] == 1

    again = a_job(rig, node, "trains.py", f"past-{number + 1}", 29900 + number)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(list((node.folder / f"past-{number + 1}").glob("rank?"))) < 2:
            assert again.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        assert report(rig, node, tmp_path)[1]["crashes"] == []
    finally:
        launched = [again.pid, *descendants(again.pid)]
        again.kill()
        again.wait(20)
        end(launched, grace_s=0)


def test_job_that_ended_well_before_is_no_finding(rig: Rig, needs_torch: None, tmp_path: Path) -> None:
    node = rig.nodes[1]
    assert end_of(a_job(rig, node, "ends_well.py", "well", 29990, "--redirects=3")) == 0
    code, found = report(rig, node, tmp_path, "--fail-on", "warning")
    assert (code, found["crashes"], found["findings"]) == (0, [], [])


@pytest.mark.parametrize(
    ("launcher", "script", "log", "rank"),
    [
        pytest.param(TORCHRUN, "raises.py", "/root/run.log", "rank 2", id="torchrun-home"),
        pytest.param(TORCHRUN, "raises.py", "/var/tmp/run.log", "rank 2", id="torchrun-tmp", marks=pytest.mark.full),
        pytest.param([], "spawned.py", "/root/run.log", "rank 1", id="spawn", marks=pytest.mark.full),
    ],
)
def test_job_that_left_nothing_but_a_log_is_found(
    rig: Rig, needs_torch: None, tmp_path: Path, launcher: list[str], script: str, log: str, rank: str
) -> None:
    node = rig.nodes[1]
    ready = f"{node.inside}/left-{len(list(node.folder.glob('left-*')))}"
    (node.folder / Path(ready).name).mkdir()
    master = {"MASTER_ADDR": node.address, "MASTER_PORT": "29795", "WORLD_SIZE": "3", "PER_NODE": "3"}
    env = {**gloo_environment(rig), **master, "READY_FOLDER": ready, "CHECKPOINTS": ready, "LIGHT_TORCH": "ranks"}
    a_job_with_a_log(node, [*launcher, f"--master-addr={node.address}"] if launcher else [], script, env, log)
    try:
        _, found = report(rig, node, tmp_path, "--for", "8s")
    finally:
        node.output(["sh", "-c", f"rm {log}"])
    [finding] = found["findings"]
    assert (finding["severity"], finding["culprits"]) == ("warning", [rank])
    assert finding["text"].startswith(f"{Path(log).parent.name}/run.log: ")


def test_job_with_a_log_dir_that_died_before_is_found_while_its_shell_lives(
    rig: Rig, needs_torch: None, tmp_path: Path
) -> None:
    node = rig.nodes[0]
    project = f"{node.inside}/own-logs"
    job = a_job(rig, node, "chained.py", "own-logs", 29890, "--redirects=3", f"--log-dir={project}/logs")
    assert end_of(job) == 1
    shell = node.run(["sh", "-c", f"cd {project} && read line"], stdin=subprocess.PIPE)
    try:
        _, found = report(rig, node, tmp_path)
    finally:
        shell.kill()
        shell.communicate()
    (crash,) = found["crashes"]
    assert (crash["job"], crash["kind"], [culprit["rank"] for culprit in crash["culprits"]]) == (
        "past-job", "exception", [1],
    )  # fmt: skip
    assert "before the console came" in crash["summary"]
