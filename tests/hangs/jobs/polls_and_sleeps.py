"""Rank 0 polls its reduction once a second and sleeps in between; rank 1 reads from a server that never answers."""

import socket
import time

import torch
import torch.distributed as dist
from common import join, silent_server


def wait_patiently(handle):
    while not handle.is_completed():
        time.sleep(1)


rank, _ = join()
if rank == 1:
    socket.create_connection(silent_server()).recv(1)
handle = dist.all_reduce(torch.ones(1024), async_op=True)
wait_patiently(handle) if rank == 0 else handle.wait()
