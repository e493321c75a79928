"""A pipeline in its backward pass: stage 2 computes for ever; 0 and 1 wait for its gradients, 3 for its activations."""

import torch
import torch.distributed as dist
from common import join


def recompute(activation):
    while float(activation.sum()) >= 0:
        activation = activation * 1.0
    return activation


rank, world_size = join()
activation = torch.zeros(16)
if rank == 2:
    recompute(activation)
elif rank == 3:
    dist.recv(activation, src=2)
else:
    dist.recv(activation, src=rank + 1)
