"""Copying a folder to every node before a job starts."""

from pathlib import Path

from rig import Rig
from run_command import PLAIN, processes_of, run


def test_job_starts_from_a_synced_folder_and_only_changes_are_resent(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (code / "run.sh").write_text("#!/bin/sh\nexec python3 lib/plain.py\n")
    (code / "run.sh").chmod(0o755)
    (code / "lib/plain.py").write_text(PLAIN)
    (code / "lib/large.bin").write_bytes(bytes(range(256)) * 10_000)  # several chunks
    options = ["--nodes", 4, "--procs-per-node", 1, "--launcher", "env", "--sync", code, "--", "./run.sh"]
    planned = run("plan", hosts, *options)
    assert planned.status == 0, planned.stdout
    assert f"{code} is copied there first: 3 files, 2.4 MiB" in planned.stdout
    result = run("start", hosts, "--yes", "--follow", *options)
    assert result.status == 0, result.stdout + result.stderr
    assert "to node[1-4]: up to 3 files changed per node" in result.stderr
    assert "] bye" in result.stdout
    (code / "lib/plain.py").write_text(PLAIN.replace("bye", "again"))
    again = run("start", hosts, "--yes", "--follow", *options)
    assert "up to 1 file changed per node" in again.stderr
    assert "] again" in again.stdout
    assert "] bye" not in again.stdout
    assert processes_of(rig, "plain.py") == []


def test_failed_folder_sync_starts_nothing(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    (tmp_path / "code").mkdir()
    options = ["--select", "node[1-2]", "--launcher", "env", "--sync", tmp_path / "code", "--workdir", "/proc/nowhere"]
    result = run("start", hosts, "--yes", *options, "--", "sleep", "600")
    assert result.status == 1
    assert "✖ node1  agent_refused: sync_failed: " in result.stderr
    assert "✖ node2  agent_refused: sync_failed: " in result.stderr
    assert "not started: copying" in result.stderr
    assert processes_of(rig, "sleep 600") == []


def test_plan_excludes_a_node_where_the_sync_target_is_a_file(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    (tmp_path / "code").mkdir()
    (rig.nodes[0].folder / "taken").write_text("a file")
    target = f"{rig.nodes[0].inside}/taken"
    result = run("plan", hosts, "--nodes", 1, "--sync", tmp_path / "code", "--workdir", target, "--launcher", "env",
                 "--", "true")  # fmt: skip
    assert result.status == 0
    assert f"– node1: {target} is not a folder" in result.stdout
