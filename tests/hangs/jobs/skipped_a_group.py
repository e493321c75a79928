"""Tensor and data groups: rank 3 skips one tensor reduction and is already in the data reduction. All wait."""

import torch
import torch.distributed as dist
from common import ready, start

start()
rank, world_size = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([i, i + 1]) for i in range(0, world_size, 2)]
sides = [dist.new_group(range(side, world_size, 2)) for side in (0, 1)]


def layer(number):
    if rank == 3 and number == 6:
        return
    dist.all_reduce(torch.ones(256), group=pairs[rank // 2])


def train_step(number):
    layer(number)
    dist.all_reduce(torch.ones(1024), group=sides[rank % 2])


for number in range(1000):
    if number == 6:
        ready()
    train_step(number)
