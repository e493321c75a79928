"""Healthy: steps of 6 s; every six minutes rank 0 evaluates for 90 s, and the others wait in a barrier."""

import time

import torch
import torch.distributed as dist
from common import forward, join, reduce

STEPS, TAKES_S = 60, 90.0


def evaluate():
    began = time.monotonic()
    while time.monotonic() - began < TAKES_S:
        score(torch.rand(100, 100))


def score(batch):
    forward(0.5, jitter=0.3)
    return float(torch.relu(batch @ batch).sum())


def train_epoch(gradients):
    for _ in range(STEPS):
        forward(6.0)
        reduce(gradients)


rank, _ = join()
while True:
    train_epoch(torch.ones(1_000_000))
    if rank == 0:
        evaluate()
    dist.barrier()
