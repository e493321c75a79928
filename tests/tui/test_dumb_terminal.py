"""Limited terminals: one without cursor movement gets a message, one without colours gets all other features."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import processes_of
from tmux import Tmux

LOCAL = """
[cluster]
name = "pod"
[[nodes]]
hosts = "here"
transport = "local"
process_filter = "env:GCONSOLE_TEST_OF_NOBODY=1"
"""


@pytest.fixture
def hosts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(LOCAL)
    return tmp_path


def run_in_terminal(*args: str, term: str) -> tuple[int, str, list[int]]:
    """Run it with this TERM; its exit code, its output, and the processes it had started at its first output."""
    master, worker = pty.openpty()
    argv = [sys.executable, "-m", "gconsole", *args]
    environment = {**os.environ, "TERM": term}
    with subprocess.Popen(argv, stdin=worker, stdout=worker, stderr=worker, env=environment) as process:
        os.close(worker)
        output, started = b"", []
        try:
            while chunk := os.read(master, 65536):
                output += chunk
                started = started or processes_of(process.pid)
        except OSError:
            pass  # the terminal is closed
    os.close(master)
    return process.returncode, output.decode(), started


@pytest.mark.parametrize(("args", "instead"), [(["hosts.toml"], "batch TARGET"), (["demo"], "demo --batch")])
def test_missing_terminal_exits_with_code_2_and_names_an_alternative(
    args: list[str], instead: str, hosts_folder: Path
) -> None:
    argv = [sys.executable, "-m", "gconsole", *args]
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "requires a terminal" in result.stderr and instead in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def terminal(hosts_folder: Path, request: pytest.FixtureRequest) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    tmux = Tmux(f"exec {sys.executable} -m gconsole hosts.toml", {**request.param, "XDG_STATE_HOME": str(hosts_folder)})
    try:
        tmux.until("1/1 nodes", "here")
        yield tmux
    finally:
        tmux.close()


@pytest.mark.parametrize("terminal", [{"NO_COLOR": "1"}], indirect=True)
def test_no_color_uses_no_colours_but_keeps_every_glyph(terminal: Tmux) -> None:
    styled = terminal.screen(styled=True)
    assert "●" in styled and "1/1 nodes" in terminal.screen()
    parameters = {
        parameter
        for sequence in re.findall(r"\x1b\[([\d;:]*)m", styled)
        for parameter in re.split("[;:]", sequence or "0")
    }
    assert parameters <= {"0", "1", "2", "7", "22", "27", "39", "49"}, "beside bold, dim, reversed: the terminal's own"
    terminal.press("n")
    terminal.until("node▲", "agent")
    end = time.monotonic() + 60
    while "● ok" not in terminal.line_of_cursor():  # screen readers follow the cursor, not a colour
        assert time.monotonic() < end, terminal.screen()
        time.sleep(0.05)


@pytest.mark.parametrize("terminal", [{"LANG": "C", "LC_ALL": "C"}], indirect=True)
def test_glyphs_are_drawn_with_the_c_locale(terminal: Tmux) -> None:
    terminal.press("2")
    terminal.until("rank", "No jobs on")
    assert "Traceback" not in terminal.screen()
