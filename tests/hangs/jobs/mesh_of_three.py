"""Pipeline, data and tensor groups of a DeviceMesh over eight ranks; rank 6 waits for a licence in its layer."""

import socket

import torch
import torch.distributed as dist
from common import ready, silent_server, start
from torch.distributed.device_mesh import init_device_mesh

start()
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("stage", "data", "tensor"))
stage, data, tensor = (mesh.get_group(name) for name in ("stage", "data", "tensor"))
members = dist.get_process_group_ranks(stage)


def forward(number):
    hidden = torch.ones(64)
    if rank == members[1]:
        dist.recv(hidden, members[0])
    for layer in range(2):
        if rank == 6 and number == 8 and layer == 1:
            license_check()
        dist.all_reduce(hidden, group=tensor)
    if rank == members[0]:
        dist.send(hidden, members[1])


def license_check():
    socket.create_connection(silent_server()).recv(16)


for number in range(1000):
    if number == 5:
        ready()
    forward(number)
    dist.all_reduce(torch.ones(256), group=data)
