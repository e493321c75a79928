"""Both ranks of the second node are stopped; the others reduce."""

import os
import signal

from common import join, step

rank, _ = join()
if rank > 1:
    os.kill(os.getpid(), signal.SIGSTOP)
step()
