"""Healthy: trains for seven minutes and ends well; it is started again, and now and then ended by its owner."""

import time

import torch
import torch.distributed as dist
from common import forward, join, reduce

TRAINS_S = 420.0


def train():
    gradients, going_on, began = torch.ones(20_000), torch.ones(1), time.monotonic()
    for step in range(10**9):
        forward(2.0)
        reduce(gradients)
        going_on.fill_(time.monotonic() - began < TRAINS_S)
        reduce(going_on)
        if going_on.item() < 1:
            print(f"done after {step} steps", flush=True)
            return


join()
train()
dist.destroy_process_group()
