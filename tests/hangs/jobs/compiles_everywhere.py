"""Healthy: all ranks compile function after function in torch's compiler, each its own ones, before the next step."""

import torch
from common import join, step


def graph_numbered(number):
    def repeated_relu(x):
        for _ in range(number % 7 + 20):
            x = torch.relu(x @ x + number)
        return x

    return repeated_relu


rank, _ = join()
while True:
    for number in range(40 + 10 * rank):
        torch._dynamo.reset()
        torch.compile(graph_numbered(number), backend="aot_eager", dynamic=False)(torch.ones(4, 4))
    step()
