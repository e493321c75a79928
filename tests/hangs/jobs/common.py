"""What the labelled jobs share: joining the group, a healthy step, and the line that says that the trouble begins.

A job makes a few healthy steps, every rank says READY, and then what its label says happens.
"""

import os
import socket
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def join():
    """Join the group of all ranks, make a few steps, say READY; (rank, world size)."""
    start()
    ready()
    return dist.get_rank(), dist.get_world_size()


def start():
    """The same without the READY."""
    torch.set_num_threads(1)
    serve_flight_recorder()
    # Long: no timeout of gloo shall end what a person would have to look at.
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    for _ in range(3):
        step()


def step():
    gradient = torch.ones(1024)
    dist.all_reduce(gradient)
    return gradient


def steps():
    """Train for ever."""
    while True:
        step()
        time.sleep(0.02)


def ready():
    # One write, where print() would make two: the ranks of a node share their launcher's stdout.
    sys.stdout.write(f"READY rank={os.environ['RANK']} pid={os.getpid()}\n")
    sys.stdout.flush()


def dead_pipe():
    """The path of a FIFO that nobody will ever open at the other end."""
    path = os.path.join(tempfile.mkdtemp(), "shard-00017.bin")
    os.mkfifo(path)
    return path


def silent_server():
    """The address of a server that takes connections and never speaks."""
    global _listening
    _listening = socket.create_server(("127.0.0.1", 0))
    return _listening.getsockname()


_listening = None
_worker_server = None


def serve_flight_recorder():
    """For the comparison with torchfrtrace only: torch's own worker server, which a job in the field does not start."""
    global _worker_server
    folder = os.environ.get("FLIGHT_FOLDER")
    if folder:
        from torch._C._distributed_c10d import _WorkerServer

        _worker_server = _WorkerServer(os.path.join(folder, f"rank{os.environ['RANK']}.sock"))
