"""A torchrun job with a worker server at every rank, of which one comes late to every collective.

The rank LATE sleeps LATE_S seconds more than the others before each all_reduce.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

STEP_S = 0.1


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    server = _WorkerServer("::", 0)
    try:
        run(dist.get_rank())
    finally:
        server.shutdown()


def run(rank: int) -> None:
    late_s = float(os.environ["LATE_S"]) if os.environ["LATE"] == str(rank) else 0.0
    gradient = torch.ones(16)
    for _ in range(3):
        dist.all_reduce(gradient)
    sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
    sys.stdout.flush()
    while True:
        time.sleep(STEP_S + late_s)
        dist.all_reduce(gradient.fill_(1.0))


main()
