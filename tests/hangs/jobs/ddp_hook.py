"""DistributedDataParallel: rank 2 is stuck in a Python hook within its backward pass, as the others wait in theirs."""

import time

import torch
from common import ready, start
from torch.nn.parallel import DistributedDataParallel


def clip(gradient):
    if stuck:
        time.sleep(36000)
    return gradient.clamp(-1, 1)


start()
stuck = False
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for number in range(1000):
    hidden = model(torch.rand(8, 64))
    hidden.register_hook(clip)
    if number == 3:
        ready()
        stuck = torch.distributed.get_rank() == 2
    hidden.sum().backward()
