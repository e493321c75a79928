"""The source of a broadcast does not block and is already in the next reduction; rank 3 never entered."""

import time

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
if rank == 3:
    time.sleep(36000)
settings = torch.ones(16)
dist.broadcast(settings, src=0)
dist.all_reduce(settings)
