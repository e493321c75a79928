"""A job whose ranks expose their flight recorders, and of which one may never enter a collective.

With WORKER_SERVER set every rank has a worker server at a TCP port, as torch.distributed.debug.start_debug_server
starts it. After a few steps the rank ABSENT sleeps and the others wait for it; without ABSENT the job keeps stepping.
"""

import contextlib
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

FOR_EVER_S = 600.0
STEP_S = 0.05


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=FOR_EVER_S))
    with contextlib.ExitStack() as stack:
        if os.environ.get("WORKER_SERVER"):
            stack.callback(_WorkerServer("::", 0).shutdown)
        run(dist.get_rank(), os.environ.get("ABSENT"))


def run(rank: int, absent: str | None) -> None:
    gradient = torch.ones(1024)
    for _ in range(3):
        dist.all_reduce(gradient)
    sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
    sys.stdout.flush()
    if absent == str(rank):
        time.sleep(FOR_EVER_S)
    while True:
        dist.all_reduce(gradient.fill_(1.0))
        time.sleep(STEP_S)


main()
