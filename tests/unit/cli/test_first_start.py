"""`gconsole` without a word: the first start in an empty folder explains itself."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gconsole.cli.main import SMALLEST
from gconsole.config import load


def run(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gconsole", *args]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_an_empty_folder_is_told_what_to_type_and_what_to_write(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    for words in (
        f"hosts.toml not found in\n{tmp_path}.",
        "gconsole demo",
        "gconsole config init",
        "--help",
        "[[nodes]]",
    ):
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert all(len(line) <= 80 for line in done.stderr.replace(str(tmp_path), "here").splitlines())


def test_the_file_that_it_shows_is_a_whole_one(tmp_path: Path) -> None:
    assert textwrap.indent(SMALLEST, "    ") in run(tmp_path).stderr
    (tmp_path / "hosts.toml").write_text(SMALLEST)
    config = load(str(tmp_path / "hosts.toml"), environ={})
    assert config.cluster == "my-cluster"
    assert [node.name for node in config.nodes] == ["node01", "node02", "node03", "node04"]


def test_a_person_in_a_terminal_reads_the_same_and_can_scroll_back_to_it(tmp_path: Path) -> None:
    master, worker = pty.openpty()
    argv = [sys.executable, "-m", "gconsole"]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=worker, stdout=worker, stderr=worker) as it:
        os.close(worker)
        said = b""
        try:
            while part := os.read(master, 65536):
                said += part
        except OSError:
            pass  # the terminal's end: nobody has it open any more
        assert it.wait(60) == 2
    os.close(master)
    assert b"gconsole demo" in said
    assert b"\x1b[?1049h" not in said


@pytest.mark.slow
def test_a_hosts_toml_that_is_there_is_what_it_opens(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(SMALLEST)
    done = run(tmp_path)
    assert done.returncode == 2
    assert "the TUI requires a terminal" in done.stderr
    (tmp_path / "hosts.toml").write_text("[cluster]\nnmae = 1\n")
    assert "hosts.toml:2: cluster.nmae" in run(tmp_path).stderr


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["--version"]])
def test_what_is_asked_for_is_answered_also_in_an_empty_folder(args: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, *args)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_was_removed_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}" && exec "{sys.executable}" -P -m gconsole'
    done = subprocess.run(["sh", "-c", command], cwd=gone, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "hosts.toml not found in\nthe current folder" in done.stderr
