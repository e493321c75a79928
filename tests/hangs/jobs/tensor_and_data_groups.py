"""Tensor groups (0,1), (2,3), … and data groups across them: rank 5 of eight sleeps. Its tensor peer waits for it,
that peer's data group waits for the peer, and the other ranks wait for those."""

import time

import torch
import torch.distributed as dist
from common import ready, start

start()
rank, world_size = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([i, i + 1]) for i in range(0, world_size, 2)]
sides = [dist.new_group(range(side, world_size, 2)) for side in (0, 1)]
tensor_group, data_group = pairs[rank // 2], sides[rank % 2]


def layer(number):
    if rank == 5 and number == 6:
        time.sleep(36000)
    dist.all_reduce(torch.ones(256), group=tensor_group)


def train_step(number):
    layer(number)
    dist.all_reduce(torch.ones(1024), group=data_group)


for number in range(1000):
    if number == 6:
        ready()
    train_step(number)
