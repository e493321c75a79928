"""The real program in a real terminal: every exit restores the terminal and stops the fleet."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE_S = 90.0
#: `q` must be answered within this; the fleet of the program takes 0.1 s to stop.
LEAVE_S = 3.0
LEAVES_THE_ALTERNATE_SCREEN = b"\x1b[?1049l"

PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from clusters import demo

async def stop():
    await asyncio.sleep(0.1)
    Path({note!r}).write_text("stopped")

app = demo().app(on_stop=stop)
app.run()
sys.exit(app.return_code)
"""


#: The same by way of `gconsole`, with a key that raises.
CRASHING = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from clusters import demo
from gconsole.cli import main
from gconsole.text import logs
from gconsole.tui.app import ConsoleApp

async def stop():
    Path({note!r}).write_text("stopped")

def crash(app):
    raise RuntimeError("a defect of the screen")

ConsoleApp.action_log = crash
logs.configure(0, Path({note!r} + ".log"))
main.gconsole.main = lambda **_: demo().app(on_stop=stop).run()
main.main()
"""


class Terminal:
    """A program on a pseudo-terminal of 80x24."""

    def __init__(self, note: Path, source: str = PROGRAM, **env: str) -> None:
        self.note = note
        self.master, worker = pty.openpty()
        termios.tcsetwinsize(self.master, (24, 80))
        self.before = termios.tcgetattr(worker)
        self.worker = worker
        environment = {**os.environ, "TERM": "xterm-256color", **env}
        program = source.format(here=str(Path(__file__).parent), note=str(note))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=worker, stdout=worker, stderr=worker, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self.output = b""

    def read_until(self, text: bytes) -> None:
        """Read until the program has written this text."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.output:
            assert time.monotonic() < end, f"{text!r} was not written; the end of the output: {self.output[-600:]!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def leaves(self) -> int:
        """Exit code of the program, which must end in time."""
        end = time.monotonic() + LEAVE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "it is still running"
            if select.select([self.master], [], [], 0.02)[0]:
                self.output += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.master, self.worker):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(tmp_path / "note")
    try:
        started.read_until(b"demo-ring")
        yield started
    finally:
        started.close()


def assert_restored(terminal: Terminal) -> None:
    assert LEAVES_THE_ALTERNATE_SCREEN in terminal.output
    assert termios.tcgetattr(terminal.worker) == terminal.before
    assert terminal.note.read_text() == "stopped"
    assert b"Traceback" not in terminal.output


def test_q_quits_at_once_and_restores_the_terminal(terminal: Terminal):
    terminal.type(b"q")
    assert terminal.leaves() == 0
    assert_restored(terminal)


def test_ctrl_c_twice_quits_and_restores_the_terminal(terminal: Terminal):
    terminal.type(b"\x03")
    terminal.read_until(b"Ctrl-C")
    terminal.type(b"\x03")
    assert terminal.leaves() == 0
    assert_restored(terminal)


def test_sigterm_exits_with_143_and_restores_the_terminal(terminal: Terminal):
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.leaves() == 128 + signal.SIGTERM
    assert_restored(terminal)


def test_closed_terminal_ends_the_console_and_stops_the_fleet(terminal: Terminal):
    os.close(terminal.worker)
    os.close(terminal.master)
    terminal.master = terminal.worker = -1
    terminal.process.send_signal(signal.SIGHUP)  # what the kernel sends to the session of a closed terminal
    # 120: Python itself could not flush its standard streams at the very end, for there is no terminal any more
    assert terminal.process.wait(LEAVE_S + 1) in (128 + signal.SIGHUP, 120)
    assert terminal.note.read_text() == "stopped"


def test_bytes_that_are_not_utf8_are_dropped(terminal: Terminal):
    terminal.type(b"\xe9n\xff")
    terminal.read_until("node▲".encode())  # the sorted column of the view that n opens
    terminal.type(b"q")
    assert terminal.leaves() == 0
    assert_restored(terminal)


def test_crash_exits_with_5_restores_the_terminal_and_names_the_log(tmp_path: Path):
    terminal = Terminal(tmp_path / "note", CRASHING)
    try:
        terminal.read_until(b"demo-ring")
        terminal.type(b"\x1b[24~")  # F12
        assert terminal.leaves() == 5
        assert_restored(terminal)
        log = tmp_path / "note.log"
        assert str(log).encode() in terminal.output.replace(b"\r\n", b"")
        assert "a defect of the screen" in log.read_text()
    finally:
        terminal.close()


def test_lines_are_drawn_in_ascii_where_the_locale_is_not_utf8(tmp_path: Path):
    terminal = Terminal(tmp_path / "note", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    try:
        terminal.read_until(b"demo-ring")
        terminal.type(b"q")
        assert terminal.leaves() == 0
        assert b"\\u" not in terminal.output and terminal.output.isascii()
        assert b"----------" in terminal.output
    finally:
        terminal.close()


@pytest.mark.parametrize("typed", [b"", b"21" * 40], ids=["from the first picture on", "after much output"])
def test_sigterm_ends_the_console_when_the_terminal_accepts_no_output(tmp_path: Path, typed: bytes):
    terminal = Terminal(tmp_path / "note")
    try:
        terminal.read_until(b"\x1b[?1049h")  # it draws more than the terminal's buffer holds
        for key in typed:
            terminal.type(bytes([key]))
            wait_until_read(terminal.worker)
        wait_for_a_full_terminal(terminal.master)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(2 * LEAVE_S) == 128 + signal.SIGTERM
        assert terminal.note.read_text() == "stopped"
    finally:
        terminal.close()


def wait_until_read(worker: int) -> None:
    """Until the program has taken every key that was typed."""
    end = time.monotonic() + DEADLINE_S
    while unread(worker):
        assert time.monotonic() < end, f"the program does not read: {unread(worker)} bytes wait"
        time.sleep(0.01)


def unread(end: int) -> int:
    """Bytes that wait to be read from this end of the terminal."""
    return int(struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, b"\0" * 4))[0])


def wait_for_a_full_terminal(master: int) -> None:
    """Until what waits to be read has not grown for half a second: no more fits, and the program's write hangs."""
    end = time.monotonic() + DEADLINE_S
    waiting, since = -1, time.monotonic()
    while time.monotonic() - since < 0.5 or waiting < 1000:
        assert time.monotonic() < end, f"the terminal is not full: {waiting} bytes wait"
        now = unread(master)
        if now != waiting:
            waiting, since = now, time.monotonic()
        time.sleep(0.05)
