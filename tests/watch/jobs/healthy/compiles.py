"""Healthy: compiles for 90 s at its start, trains for some minutes, ends well."""

import time

import torch
from common import forward, join, reduce

COMPILES_S, TRAINS_S = 90.0, 600.0


def slow_backend(graph, inputs):
    """A backend that optimizes at length."""
    time.sleep(3.0)
    return graph.forward


def compile_all():
    began, number = time.monotonic(), 0
    while time.monotonic() - began < COMPILES_S:
        torch._dynamo.reset()
        torch.compile(lambda x, scale=number: torch.relu(x @ x) * scale, backend=slow_backend)(torch.ones(4, 4))
        number += 1


join()
compile_all()
began, gradients = time.monotonic(), torch.ones(20_000)
going_on = torch.ones(1)
while going_on.item() == 1:
    forward(2.0)
    reduce(gradients)
    going_on.fill_(time.monotonic() - began < TRAINS_S)
    reduce(going_on)
