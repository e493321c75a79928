"""Rank 0 writes frames to the standard input of a program that does not read; the others wait for rank 0's message."""

import subprocess

import torch
import torch.distributed as dist
from common import join


def send_pictures():
    encoder = subprocess.Popen(["sleep", "100000"], stdin=subprocess.PIPE)
    while True:
        encoder.stdin.write(bytes(65536))


rank, world = join()
if rank == 0:
    send_pictures()
dist.recv(torch.zeros(4), src=rank - 1)
dist.send(torch.zeros(4), dst=(rank + 1) % world)
