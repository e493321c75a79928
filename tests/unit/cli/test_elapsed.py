"""Work without a count shows for how long it runs: from 2 s on, on a terminal only, and nothing of it is left."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = """
import time
from gconsole.cli import terminal
terminal.guard_output()
terminal._SHOWN_AFTER_S = {after}
terminal._UPDATE_S = 0.05
with terminal.elapsed_shown("exporting night"):
    shown = terminal.overwrite_line
    seen = []
    terminal.overwrite_line = lambda text, end=False: (seen.append(text), shown(text, end=end))
    deadline = time.monotonic() + 60
    while {waits} and len(seen) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
"""


def output(after: float, *, waits: bool, on_terminal: bool) -> bytes:
    argv = [sys.executable, "-c", CODE.format(after=after, waits=waits)]
    if not on_terminal:
        return subprocess.run(argv, capture_output=True, timeout=120, check=True).stderr
    master, worker = pty.openpty()
    with subprocess.Popen(argv, stdin=worker, stdout=worker, stderr=worker) as process:
        os.close(worker)
        text = b""
        try:
            while data := os.read(master, 4096):
                text += data
        except OSError:
            pass  # the terminal is closed
    os.close(master)
    assert process.returncode == 0, text
    return text


def test_long_work_shows_its_duration_and_removes_it():
    text = output(0.05, waits=True, on_terminal=True)
    assert b"exporting night \xe2\x80\xa6 0 s" in text and text.rstrip(b" ").endswith(b"\r\x1b[K")


def test_short_work_and_output_that_is_no_terminal_show_nothing():
    assert output(1_000.0, waits=False, on_terminal=True) == b""
    assert output(1_000.0, waits=False, on_terminal=False) == b""
