"""DistributedDataParallel: rank 1 sleeps before its backward pass; the others wait in theirs."""

import time

import torch
from common import ready, start
from torch.nn.parallel import DistributedDataParallel

start()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for number in range(1000):
    loss = model(torch.rand(8, 64)).sum()
    if number == 3:
        ready()
        if torch.distributed.get_rank() == 1:
            time.sleep(36000)
    loss.backward()
