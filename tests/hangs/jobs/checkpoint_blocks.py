"""Rank 0 writes a checkpoint to a hung file system; the others wait in the barrier."""

import torch
import torch.distributed as dist
from common import dead_pipe, join

rank, _ = join()
if rank == 0:
    torch.save({"step": 17, "weights": torch.ones(1000)}, dead_pipe())
dist.barrier()
