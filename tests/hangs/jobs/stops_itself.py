"""Rank 2 is stopped (SIGSTOP)."""

import os
import signal

from common import join, steps

rank, _ = join()
if rank == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
steps()
