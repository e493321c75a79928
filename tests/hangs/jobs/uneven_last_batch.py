"""Healthy: the last batch of each epoch is far larger on one rank after the other, and the others wait for it."""

import torch
from common import join, step


def forward(samples):
    weights = torch.rand(600, 600)
    for _ in range(samples):
        weights = torch.tanh(weights @ weights)


rank, world_size = join()
for epoch in range(10**6):
    for _ in range(10):
        forward(4)
        step()
    forward(200 if epoch % world_size == rank else 4)
    step()
