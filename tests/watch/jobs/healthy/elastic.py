"""Healthy: an elastic job that starts anew: a rank fails once in a quarter of an hour, and torchrun restarts all."""

import os
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


# each attempt has a store of its own: in torchrun's, gloo finds the addresses of the attempt before, and hangs
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 100 + int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
train(join()[0])
