"""Two pipeline stages of two tensor-parallel ranks each, on a DeviceMesh, 1F1B: rank 3 of the last stage reads from a
pipe for ever in its forward pass."""

import torch
import torch.distributed as dist
from common import dead_pipe, ready, start
from torch.distributed.device_mesh import init_device_mesh

WARM_UP, MICRO_BATCHES = 1, 4

start()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
rank, stage = dist.get_rank(), mesh.get_local_rank("pp")
tensor_group, pipeline_group = mesh.get_group("tp"), mesh.get_group("pp")
sent = []  # (handle, tensor) of this iteration
first, last = dist.get_process_group_ranks(pipeline_group)


def layer(activation, iteration):
    if rank == 3 and iteration == 4:
        open(dead_pipe(), "rb").read()
    dist.all_reduce(activation, group=tensor_group)
    return activation / 2


def forward_step(iteration):
    activation = torch.ones(256)
    if stage == 1:
        dist.recv(activation, src=first, group=pipeline_group)
    activation = layer(activation, iteration)
    if stage == 0:
        sent.append((dist.isend(activation, dst=last, group=pipeline_group), activation))


def backward_step(iteration):
    gradient = torch.ones(256)
    if stage == 0:
        dist.recv(gradient, src=last, group=pipeline_group)
    dist.all_reduce(gradient, group=tensor_group)
    if stage == 1:
        sent.append((dist.isend(gradient, dst=first, group=pipeline_group), gradient))


def train_step(iteration):
    warm_up = WARM_UP if stage == 0 else 0
    for _ in range(warm_up):
        forward_step(iteration)
    for number in range(MICRO_BATCHES):
        if number < MICRO_BATCHES - warm_up:
            forward_step(iteration)
        backward_step(iteration)
    while sent:
        sent.pop()[0].wait()


for iteration in range(10**6):
    if iteration == 4:
        ready()
    train_step(iteration)
