"""The commands of the guide to jobs: start a job, break it, find the blocking rank, stop it from another console."""

import json
import re
from pathlib import Path

import pytest
from jobs import find_torch_python
from program import batch
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, follow_until, list_jobs, processes_of, run, until

GUIDE = Path(__file__).parents[2] / "docs/guide/jobs.md"
pytestmark = pytest.mark.usefixtures("needs_torch")


def guide_command(command: str) -> list[str]:
    """The command of the guide that begins with these words, without the program it starts."""
    section = GUIDE.read_text().partition("## Start, break and stop a first job")[2].partition("\n## ")[0]
    command_line = re.search(rf"^gconsole {re.escape(command)}\b.*$", section, re.MULTILINE)
    assert command_line, f"the guide has no command with {command!r}"
    return command_line[0].partition("#")[0].partition(" -- ")[0].split()


def test_guide_commands_start_follow_diagnose_and_stop_a_job(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    code = tmp_path / "llama"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)

    # one command starts it on four nodes and copies the folder
    command = guide_command("run start")
    options = [{"hosts.toml": hosts, "~/llama": code}.get(word, word) for word in command[2:]]
    started = run(*options, "--yes", "--json", *TORCH_OPTIONS, "--", find_torch_python(), "train.py",
                  100_000, -1, "well")  # fmt: skip
    assert started.status == 0, started.stdout + started.stderr
    plan = json.loads(started.stdout)["plan"]
    job = plan["job"]
    assert len(plan["orders"]) == 4
    guide_command("run logs")
    follow_until(hosts, job, "step 4 ")
    until(lambda: "[0-7] step 3 sum 8" in run("logs", hosts, job).stdout)

    # break it, on the node of rank 5
    ranks = "grep -lsxz RANK=5 /proc/[0-9]*/environ"
    rig.nodes[2].output(["sh", "-c", f"for p in $({ranks}); do kill -STOP $(basename ${{p%/environ}}); done"])
    try:
        result = batch(hosts, *guide_command("batch")[3:], deadline_s=150.0)
        [verdict] = [candidate for candidate in result.report["verdicts"] if candidate["job"].startswith(job)]
        assert (result.status, verdict["kind"], verdict["confidence"]) == (1, "rank_stopped", "certain"), result.stderr
        assert "5" in str(verdict["culprits"])
    finally:
        # from another terminal: no process is left
        guide_command("run stop")
        stopped = run("stop", hosts, job, "--yes", "--grace", "2s")
    assert stopped.status == 0, stopped.stdout + stopped.stderr
    assert stopped.stdout.count("nothing left") == 4
    assert processes_of(rig, "train.py") == []
    assert processes_of(rig, "supervisor.py") == []
    assert [the_job["state"] for the_job in list_jobs(hosts) if the_job["job"] == job] == ["stopped"]
