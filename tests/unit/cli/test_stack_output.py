"""`--format`: stacks are written to stdout in another program's format, the summary to stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest

DUMP = """\
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {leaf}
    step (train.py:30)
    <module> (train.py:54)
"""
LEAVES = ["all_reduce (torch/distributed/distributed_c10d.py:3252)"] * 3 + ["load (loader.py:9)"]


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, leaf in enumerate(LEAVES):
        (folder / f"rank{rank}.txt").write_text(DUMP.format(pid=100 + rank, leaf=leaf))
    return folder


def diagnose(*arguments: object) -> subprocess.CompletedProcess[str]:
    return fork_server.run([fork_server.GCONSOLE, "diagnose", *arguments], text=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", "[0-2]"), ("json", '"ranks": ['), ("folded", "rank [0-2];MainThread;"), ("speedscope", '"$schema"'),
     ("dot", "digraph stacks {")],
)  # fmt: skip
def test_stdout_holds_only_the_stacks_in_every_format(dumps: Path, form: str, expected: str) -> None:
    done = diagnose(dumps, "--format", form)
    assert expected in done.stdout
    assert "undecided" in done.stderr and "undecided" not in done.stdout
    if form in ("json", "speedscope"):
        json.loads(done.stdout)


@pytest.mark.slow
def test_summary_uses_the_requested_granularity_and_threads(dumps: Path) -> None:
    done = diagnose(dumps, "--granularity", "line", "--threads", "all")
    assert "4 ranks, 2 groups, all threads, by line" in done.stdout


@pytest.mark.slow
def test_format_and_report_both_to_stdout_is_a_usage_error(dumps: Path) -> None:
    done = diagnose(dumps, "--format", "dot", "-o", "-")
    assert done.returncode == 2
    assert "--format writes to stdout" in done.stderr


@pytest.mark.slow
def test_format_without_a_capture_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "gconsole", "batch", "node1", "--format", "dot"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "--format requires --capture, --diagnose or --from" in done.stderr
