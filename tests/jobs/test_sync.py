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
    wanted = ["--nodes", 4, "--procs-per-node", 1, "--launcher", "env", "--sync", code, "--", "./run.sh"]
    planned = run("plan", hosts, *wanted)
    assert planned.status == 0, planned.stdout
    assert f"{code} is copied there first: 3 files, 2.4 MiB" in planned.stdout
    done = run("start", hosts, "--yes", "--follow", *wanted)
    assert done.status == 0, done.stdout + done.stderr
    assert "to node[1-4]: up to 3 files changed per node" in done.stderr
    assert "] bye" in done.stdout
    (code / "lib/plain.py").write_text(PLAIN.replace("bye", "again"))
    again = run("start", hosts, "--yes", "--follow", *wanted)
    assert "up to 1 files changed per node" in again.stderr
    assert "] again" in again.stdout
    assert "] bye" not in again.stdout
    assert processes_of(rig, "plain.py") == []


def test_failed_folder_sync_starts_nothing(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    (tmp_path / "code").mkdir()
    wanted = ["--nodes", 2, "--launcher", "env", "--sync", tmp_path / "code", "--workdir", "/proc/nowhere"]
    done = run("start", hosts, "--yes", *wanted, "--", "sleep", "600")
    assert done.status == 1
    assert "✖ node1  agent_refused: sync_failed: " in done.stderr
    assert "✖ node2  agent_refused: sync_failed: " in done.stderr
    assert "not started: copying" in done.stderr
    assert processes_of(rig, "sleep 600") == []


def test_plan_excludes_a_node_where_the_sync_target_is_a_file(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    (tmp_path / "code").mkdir()
    (rig.nodes[0].folder / "taken").write_text("a file")
    place = f"{rig.nodes[0].inside}/taken"
    done = run("plan", hosts, "--nodes", 1, "--sync", tmp_path / "code", "--workdir", place, "--launcher", "env", "--",
               "true")  # fmt: skip
    assert done.status == 0
    assert f"– node1: {place} is not a folder" in done.stdout
