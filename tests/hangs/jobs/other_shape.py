"""Rank 1 gathers a tensor of another size: nothing in the stacks tells the ranks apart."""

import torch
import torch.distributed as dist
from common import join

rank, world_size = join()
mine = torch.ones(1_000_000 if rank == 1 else 1000)
dist.all_reduce(mine)
dist.barrier()
