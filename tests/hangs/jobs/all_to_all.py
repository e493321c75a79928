"""Mixture of experts: rank 2 loops in its router, the others wait in all_to_all."""

import torch
import torch.distributed as dist
from common import join


def route(scores):
    order = scores.argsort()
    while (order >= 0).all():
        order = scores.argsort()
    return order


rank, world_size = join()
if rank == 2:
    route(torch.rand(100_000))
tokens = torch.ones(world_size * 4)
dist.all_to_all_single(torch.empty_like(tokens), tokens)
