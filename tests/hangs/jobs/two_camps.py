"""Two ranks call broadcast, two call all_reduce: a tie."""

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
tensor = torch.ones(1024)
if rank in (1, 2):
    dist.broadcast(tensor, src=2 if rank == 1 else 1)
else:
    dist.all_reduce(tensor)
