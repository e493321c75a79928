"""Shared by the labelled jobs: joining the group, a healthy step, and the READY line.

A job makes a few healthy steps, every rank prints READY, and then the labelled fault happens.
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
    """Join the group of all ranks, make a few steps, print READY; (rank, world size)."""
    start()
    ready()
    return dist.get_rank(), dist.get_world_size()


def start():
    """The same without READY."""
    torch.set_num_threads(1)
    serve_flight_recorder()
    # Long enough that gloo does not time out during the diagnosis.
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
    # One write, because print() makes two: the ranks of a node share their launcher's stdout.
    sys.stdout.write(f"READY rank={os.environ['RANK']} pid={os.getpid()}\n")
    sys.stdout.flush()


def dead_pipe():
    """The path of a FIFO whose other end is never opened."""
    path = os.path.join(tempfile.mkdtemp(), "shard-00017.bin")
    os.mkfifo(path)
    return path


def silent_server():
    """The address of a server that accepts connections and never sends."""
    global _listening
    _listening = socket.create_server(("127.0.0.1", 0))
    return _listening.getsockname()


_listening = None
_worker_server = None


def serve_flight_recorder():
    """Only for the comparison with torchfrtrace: torch's own worker server, which jobs in the field do not start."""
    global _worker_server
    folder = os.environ.get("FLIGHT_FOLDER")
    if folder:
        from torch._C._distributed_c10d import _WorkerServer

        _worker_server = _WorkerServer(os.path.join(folder, f"rank{os.environ['RANK']}.sock"))
