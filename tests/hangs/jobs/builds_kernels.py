"""Rank 0 builds kernels with a script that starts one short compiler after the other; the others wait in a barrier."""

import subprocess
import sys

import torch.distributed as dist
from common import join, steps

COMPILER = f"{sys.executable} -S -c 'sum(range(10_000_000))'"

rank, _ = join()
if rank == 0:
    subprocess.check_call(["sh", "-c", f"for source in $(seq 500); do {COMPILER}; done"])
dist.barrier()
steps()
