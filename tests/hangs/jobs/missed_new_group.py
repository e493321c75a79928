"""Rank 2 does not call new_group, which all ranks must call."""

import time

import torch.distributed as dist
from common import join, step

rank, world_size = join()
if rank == 2:
    time.sleep(36000)
else:
    dist.new_group(list(range(world_size)))
step()
