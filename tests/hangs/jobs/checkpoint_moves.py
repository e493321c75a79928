"""Rank 0 writes a checkpoint shard by shard and the others wait in the barrier: healthy."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import join


def save_checkpoint(folder, shards):
    for number in range(100_000):
        torch.save(shards[number % len(shards)], folder / f"shard-{number % 4}.pt")
        time.sleep(0.01)


rank, _ = join()
if rank == 0:
    save_checkpoint(Path(tempfile.mkdtemp()), [torch.rand(200_000), torch.rand(1000)])
dist.barrier()
