"""Rank 2 does not enter a monitored barrier."""

import time
from datetime import timedelta

import torch.distributed as dist
from common import join

rank, _ = join()
if rank == 2:
    time.sleep(36000)
dist.monitored_barrier(timeout=timedelta(hours=1))
