"""Steps of COLLECTIVES all_reduces each; rank LATE_RANK is late before the first by the ms in LATE_FILE, read per step.

Every rank has a worker server, so that its Flight Recorder can be read.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

STEP_S = 0.02


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with contextlib.ExitStack() as stack:
        stack.callback(_WorkerServer("::", 0).shutdown)
        run(dist.get_rank(), int(os.environ["COLLECTIVES"]), Path(os.environ["LATE_FILE"]))


def run(rank: int, collectives: int, late: Path) -> None:
    gradient = torch.ones(256)
    is_late = rank == int(os.environ["LATE_RANK"])
    for step in range(10**9):
        if step == 3:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
            sys.stdout.flush()
        late_s = float(late.read_text()) / 1000  # all ranks read it, so that reading it makes none of them late
        time.sleep(STEP_S + (late_s if is_late else 0.0))
        for _ in range(collectives):
            dist.all_reduce(gradient.fill_(1.0))


main()
