"""A plan proves that the job can start; a job that dies at once shows why; a job that waits for another one."""

import json
import sys
from pathlib import Path

from rig import Rig
from run_command import PLAIN, list_jobs, run, start_job, until


def hosts_of_two(rig: Rig, folder: Path) -> Path:
    return rig.write_hosts_toml(folder / "hosts.toml", only=["node1", "node2"])


def test_plan_refuses_a_script_that_is_missing_or_broken_on_one_node(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("checked.py", "import json, no_such_module\n")
    options = ["--nodes", 2, "--launcher", "env", "--workdir", folder]
    command = ["--", sys.executable, "checked.py"]
    planned = run("plan", hosts, *options, *command)
    assert planned.status == 0, planned.stdout + planned.stderr
    assert f"Python {'.'.join(map(str, sys.version_info[:3]))}" in planned.stdout
    imports = run("plan", hosts, *options, "--check-imports", *command)
    assert imports.status == 1
    assert "checked.py imports no_such_module, not installed for this Python" in imports.stdout
    (rig.nodes[1].folder / "checked.py").write_text("x = (\n")
    broken = run("plan", hosts, *options, *command)
    assert broken.status == 1
    assert "node2: " in broken.stdout
    assert "checked.py, line 1" in broken.stdout


def test_job_that_dies_at_once_prints_its_last_lines_in_status(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("dies.py", "print('loading')\nraise RuntimeError('no such dataset; token=abcdefgh')\n")
    started = run("start", hosts, "--yes", "--json", "--nodes", 2, "--launcher", "env", "--workdir", folder,
                  "--", "python3", "dies.py")  # fmt: skip
    document = json.loads(started.stdout)
    assert (document["started"], document["failures"]) == (True, {})
    job = document["plan"]["job"]
    assert run("wait", hosts, job, "--timeout", "60s").status == 1
    status = run("status", hosts, job).stdout
    assert "    | RuntimeError: no such dataset; token=***" in status
    [lines] = [the_job["last_lines"] for the_job in list_jobs(hosts) if the_job["job"] == job]
    assert lines[-1] == "RuntimeError: no such dataset; token=***"


def test_job_after_another_starts_when_that_completes_and_not_when_it_fails(rig: Rig, tmp_path: Path, script) -> None:
    hosts = hosts_of_two(rig, tmp_path)
    folder = script("plain.py", PLAIN)
    options = ["--nodes", 1, "--launcher", "env", "--workdir", folder]
    first = start_job(hosts, *options, "--", "python3", "plain.py", "go-first")
    for node in rig.nodes[:2]:
        (node.folder / "go-first").touch()
    second = run("start", hosts, "--yes", "--after", first, *options, "--", "python3", "plain.py")
    assert second.status == 0, second.stderr
    assert f"waiting for {first} to complete" in second.stderr
    failed = start_job(hosts, *options, "--", "python3", "-m", "json.tool", "/no/such/file")
    until(lambda: run("wait", hosts, failed).status != 0)
    third = run("start", hosts, "--yes", "--after", failed, *options, "--", "python3", "plain.py")
    assert third.status == 1
    assert f"not started: {failed} failed" in third.stderr
