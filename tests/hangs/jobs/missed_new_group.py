"""Rank 2 does not call new_group, because it is not in the group: everybody must."""

import time

import torch.distributed as dist
from common import join, step

rank, world_size = join()
if rank == 2:
    time.sleep(36000)
else:
    dist.new_group([0, 1])
step()
