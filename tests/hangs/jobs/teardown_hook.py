"""Rank 0 hangs in an atexit hook: it writes a summary to a file that blocks."""

import atexit

import torch.distributed as dist
from common import dead_pipe, join, step


@atexit.register
def write_summary():
    with open(dead_pipe(), "w") as file:
        file.write("done")


rank, _ = join()
if rank == 0:
    raise SystemExit(0)
atexit.unregister(write_summary)
step()
dist.destroy_process_group()
