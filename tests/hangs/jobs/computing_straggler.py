"""Rank 2 computes ten times as much as the others."""

import torch
from common import join, step


def forward(batch, times):
    for _ in range(times):
        batch = torch.tanh(batch @ batch)
    return batch


rank, _ = join()
batch = torch.rand(500, 500)
while True:
    forward(batch, 100 if rank == 2 else 10)
    step()
