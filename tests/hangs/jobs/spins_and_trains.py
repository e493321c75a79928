"""A healthy job that never sleeps: every rank polls its reductions in a busy loop, at one place, and goes on."""

import torch
import torch.distributed as dist
from common import join

join()
while True:
    handle = dist.all_reduce(torch.ones(1024), async_op=True)
    while not handle.is_completed():
        pass
