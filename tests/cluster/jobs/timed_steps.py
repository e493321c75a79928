"""A training loop whose rank 0 appends the end time of each step, a double of CLOCK_MONOTONIC, to the file STEP_TIMES.

A step computes for some milliseconds, reduces, and sleeps: two ranks together need less than one core. Prints
"READY rank=… pid=…" after the first steps; ends only by a signal.
"""

import array
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FLUSH = 20
WARM_UP = 20
REST_S = 0.015


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    weights, ends = torch.rand(320, 320), array.array("d")
    path = Path(os.environ["STEP_TIMES"] if dist.get_rank() == 0 else os.devnull)
    with path.open("wb", buffering=0) as file:
        for number in range(10_000_000):
            train_step(weights)
            ends.append(time.monotonic())
            if len(ends) == FLUSH:
                file.write(ends.tobytes())
                ends = array.array("d")
            if number == WARM_UP:
                sys.stdout.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")
                sys.stdout.flush()


def train_step(weights: torch.Tensor) -> None:
    for _ in range(4):
        weights = torch.tanh(weights @ weights)
    dist.all_reduce(weights)
    time.sleep(REST_S)


if __name__ == "__main__":
    main()
