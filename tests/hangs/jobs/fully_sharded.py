"""FSDP2: rank 1 does not enter the next forward pass; the others wait for its parameters."""

import time

import torch
import torch.distributed as dist
from common import ready, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

start()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
for number in range(1000):
    if number == 3:
        ready()
        if dist.get_rank() == 1:
            time.sleep(36000)
    model(torch.rand(8, 64)).sum().backward()
