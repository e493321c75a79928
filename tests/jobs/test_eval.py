"""`gconsole eval` in a rank of a real torchrun job, which goes on unharmed."""

import json
import os
from pathlib import Path

import pytest
from jobs import find_torch_python
from program import gconsole
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, follow_until, list_jobs, run, start_job

pytestmark = [
    pytest.mark.skipif(not os.access("/usr/bin/gdb", os.X_OK), reason="no /usr/bin/gdb: apt-get install gdb"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="eval is for x86_64"),
]


@pytest.mark.usefixtures("needs_torch", "needs_gdb_calls")
def test_expression_is_evaluated_in_one_rank_and_the_job_goes_on(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"], agent={"allow_eval": True})
    off = rig.write_hosts_toml(tmp_path / "off.toml", only=["node1", "node2"])
    folder = script("train.py", TRAIN)
    command = [find_torch_python(), "train.py", 10_000, -1, "well"]
    job = start_job(hosts, "--nodes", 2, "--workdir", folder, *TORCH_OPTIONS, "--", *command)
    try:
        follow_until(hosts, job, "step 3 sum 2")
        refused = gconsole("eval", off, "--rank", 1, "--yes", "world")
        assert refused.status == 2
        assert "allow_eval = true" in refused.stderr
        unconfirmed = gconsole("eval", hosts, "--rank", 1, "world")
        assert unconfirmed.status == 2
        assert "to evaluate an expression in rank 1, add --yes" in unconfirmed.stderr
        value = gconsole("eval", hosts, "--rank", 1, "--yes", "--timeout", "30s", "(rank, world, total.shape)")
        assert (value.status, value.stdout) == (0, "(1, 2, torch.Size([8]))\n"), value.stderr
        assert "rank 1 of " in value.stderr
        assert "node2" in value.stderr
        error = gconsole("eval", hosts, "--rank", 0, "--yes", "--json", "--timeout", "30s", "total.nosuch")
        assert error.status == 1, error.stderr
        answer = json.loads(error.stdout)["answer"]
        assert (answer["outcome"], answer["type"]) == ("error", "AttributeError")
        missing = gconsole("eval", hosts, "--rank", 9, "--yes", "world")
        assert (missing.status, "no live rank 9" in missing.stderr) == (2, True)
        step = gconsole("eval", hosts, "--rank", 0, "--yes", "--timeout", "30s", "step").stdout
        follow_until(hosts, job, f"step {int(step) + 20} sum 2")
        [listed_job] = [the_job for the_job in list_jobs(hosts) if the_job["job"] == job]
        assert listed_job["state"] == "running"
    finally:
        assert run("stop", hosts, job, "--yes").status == 0
