"""Rank 3 uses two groups in the opposite order."""

import torch
import torch.distributed as dist
from common import ready, start


def reduce_gradients(group):
    dist.all_reduce(torch.ones(1024), group=group)


def reduce_norms(group):
    dist.all_reduce(torch.ones(16), group=group)


start()
gradients, norms = dist.new_group(), dist.new_group()
ready()
if dist.get_rank() == 3:
    reduce_norms(norms)
    reduce_gradients(gradients)
else:
    reduce_gradients(gradients)
    reduce_norms(norms)
