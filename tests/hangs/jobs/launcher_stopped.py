"""The launcher of the second node is stopped; the ranks keep training and are healthy."""

import os
import signal

from common import join, steps

rank, _ = join()
if rank == 2:
    os.kill(os.getppid(), signal.SIGSTOP)
steps()
