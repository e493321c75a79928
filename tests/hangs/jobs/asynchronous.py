"""All ranks reduce asynchronously and wait at the handle, which no torch frame shows; rank 2 sleeps."""

import time

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
if rank == 2:
    time.sleep(36000)
handle = dist.all_reduce(torch.ones(1024), async_op=True)
handle.wait()
