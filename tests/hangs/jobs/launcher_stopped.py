"""The launcher of the second node has been stopped; the ranks train on, and nothing is wrong with them."""

import os
import signal

from common import join, steps

rank, _ = join()
if rank == 2:
    os.kill(os.getppid(), signal.SIGSTOP)
steps()
