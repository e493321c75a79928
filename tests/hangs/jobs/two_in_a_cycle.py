"""Ranks 2 and 3 receive from each other; 0 and 1 wait for all in a collective."""

import torch
import torch.distributed as dist
from common import join, step

rank, _ = join()
if rank >= 2:
    dist.recv(torch.zeros(16), src=5 - rank)
step()
