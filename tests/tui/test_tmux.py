"""The terminals of the tests leave nothing behind, whatever becomes of the tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MAKES_ONE = """
import time, tmux
one = tmux.Tmux("sleep 3600")
print(one._own.name, one.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_tmux_terminal_is_removed_when_its_test_process_is_killed(how: signal.Signals) -> None:
    argv = [sys.executable, "-c", MAKES_ONE]
    with subprocess.Popen(argv, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        folder, pid = tests.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        tests.send_signal(how)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() or Path(folder).exists():
        assert time.monotonic() < deadline, f"of the terminal with the folder {folder} something is still there"
        time.sleep(0.05)
