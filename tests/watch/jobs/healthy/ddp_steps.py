"""Healthy: DistributedDataParallel, a step of 4 s, no watched variable; its gradients show in the node's traffic."""

import torch
from common import forward, join
from torch.nn.parallel import DistributedDataParallel

join()
model = DistributedDataParallel(torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
while True:
    forward(4.0, jitter=0.02)
    optimizer.zero_grad()
    model(torch.randn(4, 1024)).square().mean().backward()
    optimizer.step()
