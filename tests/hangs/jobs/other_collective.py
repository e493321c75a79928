"""Rank 1 calls broadcast where the others call all_reduce."""

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
tensor = torch.ones(1024)
if rank == 1:
    dist.broadcast(tensor, src=2)
else:
    dist.all_reduce(tensor)
