"""Healthy: rank 1 compiles function after function in torch's compiler; the others are in all_reduce."""

import torch
from common import join, step


def graph_numbered(number):
    def repeated_relu(x):
        for _ in range(number % 7 + 20):
            x = torch.relu(x @ x + number)
        return x

    return repeated_relu


rank, _ = join()
if rank == 1:
    for number in range(10**6):
        torch._dynamo.reset()
        torch.compile(graph_numbered(number), backend="aot_eager", dynamic=False)(torch.ones(4, 4))
step()
