"""PyTorch's tutorial on DistributedDataParallel, in short: mp.spawn without variables for the ranks; rank 1 sleeps."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def enter_group(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo_basic(rank, world_size):
    enter_group(rank, world_size)
    model = DistributedDataParallel(nn.Linear(10, 5))
    for step in range(10**9):
        if step == 5:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()
        if step == 30 and rank == 1 and not os.environ.get("HEALTHY"):
            time.sleep(36000)
        model(torch.randn(20, 10)).sum().backward()
        time.sleep(0.02)


if __name__ == "__main__":
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_NUMBER"):
        os.environ.pop(name, None)
    count = int(os.environ.pop("PER_NODE"))
    mp.spawn(demo_basic, args=(count,), nprocs=count, join=True)
