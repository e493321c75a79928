"""`--json` of the `gconsole run` commands that act on a job."""

import json
from collections.abc import Callable
from pathlib import Path

from rig import Rig
from run_command import PLAIN, run, start_job


def test_wait_logs_fetch_and_stop_print_json(rig: Rig, tmp_path: Path, script: Callable[[str, str], str]) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    folder = script("plain.py", PLAIN)
    options = ["--nodes", 2, "--procs-per-node", 1, "--launcher", "env", "--workdir", folder]
    job = start_job(hosts, *options, "--", "python3", "plain.py")
    waited = run("wait", hosts, job, "--json")
    assert waited.status == 0, waited.stderr
    assert [view["state"] for view in json.loads(waited.stdout)["jobs"]] == ["completed"]
    for output in ([], ["-o", "-"], ["-o", tmp_path / "lines.json"]):
        logs = run("logs", hosts, job, "--json", *output)
        text = (tmp_path / "lines.json").read_text() if tmp_path / "lines.json" in output else logs.stdout
        lines = [json.loads(line) for line in text.splitlines()]
        ends = [line for line in lines if line["text"] == "bye"]
        assert sorted(rank for line in ends for rank in line["ranks"]) == [0, 1]
        assert {line["stream"] for line in ends} == {"stdout"}
        assert all(isinstance(line["written_at"], int) for line in lines)
    fetched = json.loads(run("fetch", hosts, job, "plain.py", "-o", tmp_path / "got", "--json").stdout)
    assert fetched["schema"] == "gconsole.fetch/1"
    assert fetched["files"] == [str(tmp_path / f"got/{name}/plain.py") for name in ("node1", "node2")]
    assert (fetched["bytes"], fetched["problems"]) == (2 * len(PLAIN), [])
    stopped = json.loads(run("stop", hosts, job, "--yes", "--json").stdout)
    assert [(row["node"], row["stopped"]["left"], row["failure"]) for row in stopped["nodes"]] == [
        ("node1", [], None), ("node2", [], None),
    ]  # fmt: skip
    assert stopped["pending"] == []
