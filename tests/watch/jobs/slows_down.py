"""Two ranks whose steps of 5 s compute for most of the time; SLOW_AFTER seconds later they take three times as long."""

import os
import sys
import time

import torch
import torch.distributed as dist

STEP_S, FACTOR = 5.0, 3.0


def forward(seconds: float) -> None:
    time.sleep(seconds)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gradients, began = torch.ones(4_000_000), time.monotonic()
    for number in range(1_000_000):
        is_slow = time.monotonic() - began > float(os.environ["SLOW_AFTER"])
        forward(STEP_S * (FACTOR if is_slow else 1.0) - 0.3)
        dist.all_reduce(gradients)
        gradients.div_(dist.get_world_size())
        if number == 0:
            sys.stdout.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
