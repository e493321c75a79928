"""Healthy: the last batch of each epoch takes nine times as long on one rank after the other."""

import torch
from common import forward, join, reduce

rank, world = join()
gradients = torch.ones(20_000)
for epoch in range(10**6):
    for _ in range(12):
        forward(2.0)
        reduce(gradients)
    forward(18.0 if epoch % world == rank else 2.0)
    reduce(gradients)
