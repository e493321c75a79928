"""`gconsole demo` from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fork_server
import pytest

GCONSOLE = [sys.executable, "-m", "gconsole", "demo"]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run([fork_server.GCONSOLE, "demo", *args], text=True, timeout=90)


@pytest.mark.parametrize(
    "args",
    [
        ["-o", "report.json"],
        ["--for", "5s"],
        ["--nodes", "0"],
        ["--ranks", "many"],
        ["--capture"],
        ["--batch", "--samples", "3"],
    ],
)
def test_invalid_options_are_rejected_with_exit_code_2(args: list[str]) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")
def test_demo_report_lists_every_node_and_rank(tmp_path: Path) -> None:
    done = run("--nodes", "2", "--ranks", "4", "--gpus", "1", "--batch", "-o", str(tmp_path / "report.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(node["node"], node["state"]) for node in report["nodes"]] == [("demo1", "ok"), ("demo2", "ok")]
    assert [(rank["rank"], rank["node"]) for rank in report["ranks"]] == [
        (0, "demo1"), (1, "demo1"), (2, "demo2"), (3, "demo2"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_no_processes_or_files(number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [*GCONSOLE, "--nodes", "2", "--ranks", "2", "--batch", "--for", "60s"]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        end = time.monotonic() + 15
        while not list(tmp_path.glob("*/hosts.toml")) or len(descendants(demo.pid)) < 5:  # servers, 2 ranks, 2 agents
            assert time.monotonic() < end and demo.poll() is None
            time.sleep(0.02)
        started = descendants(demo.pid)
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=90)
    assert demo.returncode == 130
    assert "Traceback" not in errors
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def descendants(pid: int) -> list[int]:
    """Pids of all descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process ended
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")
def test_demo_capture_reads_the_stacks_of_all_ranks(tmp_path: Path) -> None:
    done = run("--nodes", "2", "--ranks", "4", "--batch", "--capture", "--samples", "1", "-o", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    assert "STACKS  4 ranks" in done.stdout
    [capture] = json.loads((tmp_path / "r.json").read_text())["captures"]
    assert (capture["ranks"], capture["read"], capture["samples"]) == ([0, 1, 2, 3], [0, 1, 2, 3], 1)
    assert all(group["path"][0]["file"] == "ring.py" for group in capture["groups"])
