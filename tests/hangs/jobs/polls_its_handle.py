"""Rank 2 asks its asynchronous reduction over and over whether it is done, as the others wait at theirs: it looks busy,
and is innocent. Rank 3 sleeps."""

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
