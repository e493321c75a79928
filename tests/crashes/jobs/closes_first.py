"""Rank 3 closes its connections before its exception is printed: the errors of the others are earlier."""

import time

import torch.distributed as dist
from common import join, steps


def train(rank):
    if rank == 3:
        raise ZeroDivisionError("no samples in this batch")
    steps()


rank = join()
try:
    train(rank)
except ZeroDivisionError:
    dist.destroy_process_group()
    time.sleep(2)
    raise
