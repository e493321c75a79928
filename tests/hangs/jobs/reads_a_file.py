"""Rank 1 reads from a file that opens and never returns data."""

import os

from common import dead_pipe, join, step


def read_index(path):
    with os.fdopen(os.open(path, os.O_RDWR), "rb", buffering=0) as file:
        return file.read(4096)


rank, _ = join()
if rank == 1:
    read_index(dead_pipe())
step()
