"""Healthy: an elastic job that starts anew: a rank fails once in a quarter of an hour, and torchrun restarts all."""

import time

import torch
from common import forward, join, reduce

FAILS_AFTER_S = 900.0


def train(rank):
    gradients, began = torch.ones(20_000), time.monotonic()
    while True:
        forward(2.5)
        reduce(gradients)
        if rank == 1 and time.monotonic() - began > FAILS_AFTER_S:
            raise RuntimeError("a preempted worker")


train(join()[0])
