"""Healthy: steps of a second that are watched."""

import torch
from common import forward, join, reduce


def train():
    gradients = torch.ones(20_000)
    for step in range(10**9):
        forward(1.0)
        reduce(gradients)
        if step % 50 == 0:
            print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)


join()
train()
