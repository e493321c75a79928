"""Rank 0 hangs in what it does at its end (atexit): a summary is written to a file that gives nothing."""

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
