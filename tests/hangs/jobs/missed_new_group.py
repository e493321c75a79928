"""Rank 2 does not come to new_group, which everybody must call."""

import time

import torch.distributed as dist
from common import join, step

rank, world_size = join()
if rank == 2:
    time.sleep(36000)
else:
    dist.new_group(list(range(world_size)))
step()
