"""Keeps this machine's cores awake during latency measurements, with an idle-priority busy loop on each.

An idle core sleeps, in a virtual machine as far as the host, and waking it adds latency: the fewer nodes send, the
higher the latency of each. That is an artefact of running a whole cluster on one machine, and it was as large as the
effect that is measured here.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: SCHED_IDLE (sched(7)) runs only on otherwise idle cores; the loop ends with its parent.
_LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[2]):
    sum(range(10000))
"""


@contextlib.contextmanager
def cores_awake() -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-c", _LOOP, str(core), str(os.getpid())])
        for core in sorted(os.sched_getaffinity(0))
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
