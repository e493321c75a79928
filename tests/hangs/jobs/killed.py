"""Rank 3 is killed during the diagnosis; the others catch gloo's exception and wait for it to come back."""

import os
import signal
import time

import torch.distributed as dist
from common import join, steps

rank, _ = join()
if rank == 3:
    time.sleep(4)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    steps()
except RuntimeError:
    dist.distributed_c10d._get_default_store().get("rank-3-is-back")
