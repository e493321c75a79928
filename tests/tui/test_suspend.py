"""`Ctrl+Z` restores the shell's terminal, and `fg` the console's screen."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

DEADLINE_S = 90.0

PROGRAM = """
import sys
sys.path.insert(0, {here!r})
from clusters import demo
demo().app().run()
"""


class Shell:
    """An interactive shell on a pseudo-terminal, which can resume a stopped program."""

    def __init__(self) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", PS1="ready> ", HISTFILE="")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        termios.tcsetwinsize(self.master, (24, 80))
        self.output = b""

    def until(self, text: bytes) -> None:
        """Wait until this text is written, and drop the output up to it."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.output:
            assert time.monotonic() < end, f"{text!r} was not written; the end of the output: {self.output[-600:]!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536)
        self.output = self.output.partition(text)[2]

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        os.close(self.master)  # the kernel sends SIGHUP
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash, and so no job control to test with")
def test_ctrl_z_suspends_and_fg_resumes(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(here=str(Path(__file__).parent)))
    shell = Shell()
    try:
        shell.until(b"ready> ")
        shell.type(f"{sys.executable} {script}\n".encode())
        shell.until(b"demo-ring")
        shell.type(b"\x1a")
        shell.until(b"\x1b[?1049l")  # the alternate screen is left
        shell.until(b"Stopped")
        shell.until(b"ready> ")
        shell.type(b"fg\n")
        shell.until(b"\x1b[?1049h")
        shell.until(b"demo-ring")
        shell.type(b"q")
        shell.until(b"\x1b[?1049l")
        shell.until(b"ready> ")
        shell.type(b"echo ended $?\n")
        shell.until(b"ended 0")
    finally:
        shell.close()
