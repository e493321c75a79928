"""`gconsole demo` in a real terminal: resized, clicked, suspended, left, and closed from outside."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import processes_of, until_none_is_left
from tmux import Tmux

from gconsole.text.cells import width_of

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the demo's nodes are this machine, which is no Linux"),
]
DEMO = f"{sys.executable} -m gconsole demo --nodes 2 --ranks 2 --gpus 2"
#: Variables inherited from a terminal of another size; the kernel's size takes precedence.
OF_ANOTHER_TERMINAL = {"COLUMNS": "80", "LINES": "24"}
#: Text of the screen once the nodes are connected; the ranks are found within seconds.
READY = ("2/2 nodes", "demo1")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the demo keeps its keys while it runs."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def terminal(scratch: Path) -> Iterator[Tmux]:
    tmux = Tmux(f"exec {DEMO}", {"TMPDIR": str(scratch), **OF_ANOTHER_TERMINAL})
    try:
        tmux.until(*READY)
        yield tmux
    finally:
        tmux.close()


def test_demo_adapts_to_terminal_resizes(terminal: Tmux) -> None:
    assert "1 Overview  2 Ranks" in terminal.screen()
    terminal.resize(60, 20)
    terminal.until("2/2 nodes", "q quit", without="2 Ranks")  # there the tabs are their digits
    lines = terminal.screen().splitlines()
    assert len(lines) == 20 and max(map(width_of, lines)) <= 60
    assert "q quit" in lines[-1]
    terminal.press("2")
    terminal.until("2 Ranks", "rank▲")
    terminal.resize(200, 60)
    terminal.until("1 Overview  2 Ranks", "wchan", "source")
    lines = terminal.screen().splitlines()
    assert len(lines) == 60 and "q quit" in lines[-1]
    terminal.resize(120, 40)
    terminal.press("1")
    terminal.until("FINDINGS", "1 Overview  2 Ranks")
    assert len(terminal.screen().splitlines()) == 40


def test_mouse_opens_tabs_sorts_and_scrolls(terminal: Tmux) -> None:
    terminal.until("2/2 ranks")
    terminal.click("2 Ranks")
    terminal.until("rank▲", "wchan")
    terminal.click("pid")
    terminal.until("pid▲")
    terminal.click("pid▲")
    terminal.until("pid▼")
    terminal.resize(60, 20)
    terminal.until("2 Ranks", without="1 Overview")
    terminal.press("?")
    terminal.until("Keys", "Esc", "Sort by the next column")
    for _ in range(3):
        terminal.wheel_down("Keys", lines_below=3)
    terminal.until("Keys", without="Sort by the next column")


def test_ctrl_c_twice_quits_and_leaves_no_process_or_file(terminal: Tmux, scratch: Path) -> None:
    started = [terminal.pid, *processes_of(terminal.pid)]
    assert len(started) >= 6  # the console, the cluster, a server and an agent a node, the ranks
    terminal.press("C-c")
    terminal.until("press Ctrl-C again to quit", *READY)
    terminal.press("C-c")
    terminal.until_gone()
    until_none_is_left(started)
    assert list(scratch.iterdir()) == []


def test_closing_the_terminal_leaves_no_process_or_file(terminal: Tmux, scratch: Path) -> None:
    started = [terminal.pid, *processes_of(terminal.pid)]
    assert len(started) >= 6
    terminal.close()
    until_none_is_left(started)
    assert list(scratch.iterdir()) == []


def test_ctrl_z_suspends_to_the_shell_and_fg_resumes_the_screen(scratch: Path) -> None:
    terminal = Tmux(env={"TMPDIR": str(scratch)})
    try:
        terminal.until("ready>")
        terminal.press(DEMO, "Enter")
        terminal.until(*READY)
        started = processes_of(terminal.pid)
        terminal.press("C-z")
        terminal.until("Stopped", "ready>", without="2/2 nodes")
        terminal.press("echo still $((6*7))", "Enter")
        terminal.until("still 42")
        terminal.press("fg", "Enter")
        terminal.until(*READY, "1 Overview  2 Ranks", "FINDINGS", without="Stopped")
        terminal.press("2")
        terminal.until("wchan")
        terminal.press("q")
        terminal.until("ready>", "still 42", without="wchan")
        terminal.press("echo code $?", "Enter")
        terminal.until("code 0")
        until_none_is_left(started)
    finally:
        terminal.close()
    assert list(scratch.iterdir()) == []
