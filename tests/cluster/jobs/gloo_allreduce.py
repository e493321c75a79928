"""A torchrun job on the CPU: every rank steps an all_reduce over gloo, with a short sleep, until it is stopped.

Prints "READY rank=… pid=…" after the first step. SIGTERM to any rank (or to torchrun, which passes it on) or the file
named in GLOO_STOP_FILE ends all ranks after the same step.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.05
STOP_FILE = Path(os.environ.get("GLOO_STOP_FILE", "/nonexistent"))
stopping = False


def main() -> None:
    signal.signal(signal.SIGTERM, ask_to_stop)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    step = 0
    goes_on = True
    while goes_on:
        goes_on = train_step(step, world_size)
        if step == 0:
            # One write, because print() makes two: the ranks of a node share their launcher's stdout.
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()
        step += 1
        # After the last step too: a gloo thread that releases its tensor during interpreter exit aborts the process.
        time.sleep(STEP_S)
    dist.destroy_process_group()


def train_step(step: int, world_size: int) -> bool:
    """One all_reduce; False when any rank wants to stop, which all ranks learn in the same step."""
    gradient = torch.ones(1024)
    gradient[-1] = float(stopping or STOP_FILE.exists())
    dist.all_reduce(gradient)
    assert gradient[0] == world_size
    return gradient[-1] == 0


def ask_to_stop(number: int, frame: object) -> None:
    global stopping
    stopping = True


if __name__ == "__main__":
    main()
