"""Healthy: a pipeline of four stages that send activations forwards and gradients backwards."""

import time

import torch
import torch.distributed as dist
from common import join

rank, world = join()
activation = torch.ones(256)
while True:
    if rank > 0:
        dist.recv(activation, rank - 1)
    time.sleep(0.05)
    if rank < world - 1:
        dist.send(activation, rank + 1)
        dist.recv(activation, rank + 1)
    if rank > 0:
        dist.send(activation, rank - 1)
