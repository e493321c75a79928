"""Rank 2 does not reach a monitored barrier; rank 0 names it."""

import time
from datetime import timedelta

import torch.distributed as dist
from common import join, steps

if join() == 2:
    time.sleep(3600)
dist.monitored_barrier(timeout=timedelta(seconds=5))
steps()
