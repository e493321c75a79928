"""Keeps this machine's cores awake while a latency is measured, by a loop on each that gives way to everything else.

A core that has nothing to do sleeps, in a virtual machine as far as the host, and what wakes it then pays for that: the
fewer nodes speak, the slower each of them is heard. That is a property of a machine that plays a whole cluster, and it
was as large as what is measured here.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: SCHED_IDLE (sched(7)) runs only where nothing else wants to; it ends with whoever started it.
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
