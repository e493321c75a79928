"""Healthy: rank 3 has fewer batches, and takes part in the others' collectives as torch's Join context does."""

import time

import torch
import torch.distributed as dist
from common import ready, start
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

start()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
batches = 10 if dist.get_rank() == 3 else 10**9
with Join([model]):
    for number in range(batches):
        if number == 5:
            ready()
        model(torch.rand(8, 64)).sum().backward()
        time.sleep(0.02)
