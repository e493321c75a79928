"""`gconsole` without arguments: guidance on first start in an empty folder."""

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


def test_start_without_hosts_toml_prints_commands_and_an_example_file(tmp_path: Path) -> None:
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


def test_printed_example_file_is_a_valid_hosts_toml(tmp_path: Path) -> None:
    assert textwrap.indent(SMALLEST, "    ") in run(tmp_path).stderr
    (tmp_path / "hosts.toml").write_text(SMALLEST)
    config = load(str(tmp_path / "hosts.toml"), environ={})
    assert config.cluster == "my-cluster"
    assert [node.name for node in config.nodes] == ["node01", "node02", "node03", "node04"]


def test_missing_hosts_toml_in_a_terminal_is_reported_outside_the_alternate_screen(tmp_path: Path) -> None:
    master, worker = pty.openpty()
    argv = [sys.executable, "-m", "gconsole"]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=worker, stdout=worker, stderr=worker) as it:
        os.close(worker)
        output = b""
        try:
            while part := os.read(master, 65536):
                output += part
        except OSError:
            pass  # the terminal was closed
        assert it.wait(60) == 2
    os.close(master)
    assert b"gconsole demo" in output
    assert b"\x1b[?1049h" not in output


@pytest.mark.slow
def test_existing_hosts_toml_is_loaded_by_default(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(SMALLEST)
    done = run(tmp_path)
    assert done.returncode == 2
    assert "the TUI requires a terminal" in done.stderr
    (tmp_path / "hosts.toml").write_text("[cluster]\nnmae = 1\n")
    assert "hosts.toml:2: cluster.nmae" in run(tmp_path).stderr


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["--version"]])
def test_help_and_version_work_without_hosts_toml(args: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, *args)
    assert (done.returncode, done.stderr) == (0, "")


def test_start_in_a_removed_folder_fails_without_a_traceback(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}" && exec "{sys.executable}" -P -m gconsole'
    done = subprocess.run(["sh", "-c", command], cwd=gone, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "hosts.toml not found in\nthe current folder" in done.stderr
