"""Healthy: watched steps of 3 s; every hundredth time, rank 0 writes a checkpoint for a minute, and the others wait."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import forward, join, reduce

EVERY, TAKES_S = 100, 60.0


def save_checkpoint(folder):
    began, number = time.monotonic(), 0
    while time.monotonic() - began < TAKES_S:
        with (folder / f"shard-{number % 4}.pt").open("wb") as file:
            write_slowly(file)
        number += 1


def write_slowly(file):
    """A full file system takes its time."""
    torch.save(torch.rand(20_000), file)
    time.sleep(0.7)


def train(rank, folder):
    gradients = torch.ones(1_000_000)
    for step in range(1, 10**9):
        forward(3.0)
        reduce(gradients)
        if step % EVERY == 0:
            if rank == 0:
                save_checkpoint(folder)
            dist.barrier()


with tempfile.TemporaryDirectory() as name:
    train(join()[0], Path(name))
