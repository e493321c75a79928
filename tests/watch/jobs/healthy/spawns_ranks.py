"""Healthy: PyTorch's tutorial on DistributedDataParallel, mp.spawn without variables for the ranks."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def enter_group(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo_basic(rank, world_size):
    enter_group(rank, world_size)
    model = DistributedDataParallel(torch.nn.Linear(100, 100))
    sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
    sys.stdout.flush()
    while True:
        model(torch.randn(20, 100)).sum().backward()
        time.sleep(1.5)


if __name__ == "__main__":
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_NUMBER"):
        os.environ.pop(name, None)
    count = int(os.environ.pop("PER_NODE"))
    mp.spawn(demo_basic, args=(count,), nprocs=count, join=True)
