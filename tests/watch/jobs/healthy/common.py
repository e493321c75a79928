"""Shared by the healthy jobs: joining the group, the time of a step on a GPU, and the READY line."""

import os
import random
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def join():
    """Join the group of all ranks and print READY: (rank, world size)."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    ready()
    return dist.get_rank(), dist.get_world_size()


def ready():
    sys.stdout.write(f"READY rank={os.environ['RANK']} pid={os.getpid()}\n")
    sys.stdout.flush()


def forward(seconds, jitter=0.05):
    """Compute as a rank does whose kernels run on a GPU: the host waits."""
    torch.ones(64, 64) @ torch.ones(64, 64)
    time.sleep(seconds * random.uniform(1 - jitter, 1 + jitter))


def reduce(gradients):
    dist.all_reduce(gradients)
    gradients.div_(dist.get_world_size())
