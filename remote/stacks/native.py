"""The native calls of one process: py-spy stops it meanwhile, for 0.1 to 4 s, so only who was named is read so."""

import os
import signal
import time

from ..proc.procfs import GONE
from . import py_spy

MODE = "blocking"
#: Reading the symbols of large libraries for the first time takes seconds.
PROCESS_S = 6.0
#: So long a process may still be seen as traced after py-spy has ended.
LET_GO_S = 1.0


def threads_of(blob, pid, left_s):
    """The threads of a process with their native calls. Raises NoStack."""
    if left_s <= 0:
        raise py_spy.NoStack("timed_out", "its turn did not come before the capture's deadline")
    return py_spy.threads_of(blob, pid, min(PROCESS_S, left_s), command="py_spy_native")


def let_go(procfs, target):
    """See to it that a process that was not stopped before it was read is not stopped after: py-spy may be killed."""
    end = time.monotonic() + LET_GO_S
    while time.monotonic() < end:
        try:
            stat = procfs.stat(target.pid)
        except GONE:
            return
        if stat.start_ticks != target.start_ticks or stat.state not in "Tt":
            return
        if stat.state == "T":
            os.kill(target.pid, signal.SIGCONT)
        time.sleep(0.01)
