"""The commands of the guide to jobs: start a job, break it, find the blocking rank, stop it from another console."""

import json
import re
from pathlib import Path

import pytest
from jobs import find_torch_python
from program import batch
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, follow_until, processes_of, run, the_jobs, until

GUIDE = Path(__file__).parents[2] / "docs/guide/jobs.md"
pytestmark = pytest.mark.usefixtures("needs_torch")


def guide_command(words: str) -> list[str]:
    """The command of the guide that begins with these words, without the program it starts."""
    story = GUIDE.read_text().partition("## Start, break and stop a first job")[2].partition("\n## ")[0]
    found = re.search(rf"^gconsole {re.escape(words)}\b.*$", story, re.MULTILINE)
    assert found, f"the guide has no command with {words!r}"
    return found[0].partition("#")[0].partition(" -- ")[0].split()


def test_guide_commands_start_follow_diagnose_and_stop_a_job(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    code = tmp_path / "llama"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)

    # one command starts it on four nodes and copies the folder
    command = guide_command("run start")
    options = [{"hosts.toml": hosts, "~/llama": code}.get(word, word) for word in command[2:]]
    done = run(*options, "--yes", "--json", *TORCH_OPTIONS, "--", find_torch_python(), "train.py",
               100_000, -1, "well")  # fmt: skip
    assert done.status == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)["plan"]
    job = plan["job"]
    assert len(plan["orders"]) == 4
    guide_command("run logs")
    follow_until(hosts, job, "step 4 ")
    until(lambda: "[0-7] step 3 sum 8" in run("logs", hosts, job).stdout)

    # break it, on the node of rank 5
    ranks = "grep -lsxz RANK=5 /proc/[0-9]*/environ"
    rig.nodes[2].output(["sh", "-c", f"for p in $({ranks}); do kill -STOP $(basename ${{p%/environ}}); done"])
    try:
        found = batch(hosts, *guide_command("batch")[3:], deadline_s=150.0)
        [verdict] = [one for one in found.report["verdicts"] if one["job"].startswith(job)]
        assert (found.status, verdict["kind"], verdict["confidence"]) == (1, "rank_stopped", "certain"), found.stderr
        assert "5" in str(verdict["culprits"])
    finally:
        # from another terminal: no process is left
        guide_command("run stop")
        stopped = run("stop", hosts, job, "--yes", "--grace", "2s")
    assert stopped.status == 0, stopped.stdout + stopped.stderr
    assert stopped.stdout.count("nothing left") == 4
    assert processes_of(rig, "train.py") == []
    assert processes_of(rig, "supervisor.py") == []
    assert [the_job["state"] for the_job in the_jobs(hosts) if the_job["job"] == job] == ["stopped"]
