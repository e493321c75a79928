"""Two ranks whose steps take half a minute: rank 1 computes for most of it, and rank 0 waits meanwhile."""

import os
import random
import sys
import time

import torch
import torch.distributed as dist

USUAL_S, LATE_S = 8.0, 24.0


def forward(seconds: float) -> None:
    until = time.monotonic() + seconds * random.uniform(0.9, 1.1)
    while time.monotonic() < until:
        time.sleep(0.05)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradients = torch.ones(1_000_000)
    for number in range(1_000_000):
        forward(LATE_S if rank == 1 and number else USUAL_S)
        dist.all_reduce(gradients)
        gradients.div_(dist.get_world_size())
        if number == 0:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
