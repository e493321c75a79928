"""The senders of a reduce to rank 0 are already in the barrier; rank 2 never entered, and rank 0 waits for it."""

import time

import torch
import torch.distributed as dist
from common import join

rank, _ = join()
if rank == 2:
    time.sleep(36000)
loss = torch.ones(16)
dist.reduce(loss, dst=0)
dist.barrier()
