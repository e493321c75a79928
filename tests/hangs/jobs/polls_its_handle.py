"""Rank 2 polls its asynchronous reduction in a busy loop while the others wait at theirs: it uses CPU but is not
the culprit. Rank 3 sleeps."""

import time

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
if rank == 3:
    time.sleep(36000)
handle = dist.all_reduce(torch.ones(1024), async_op=True)
if rank == 2:
    while not handle.is_completed():
        pass
handle.wait()
