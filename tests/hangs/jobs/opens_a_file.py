"""Rank 2 blocks in open()."""

from common import dead_pipe, join, step


def load_shard(path):
    with open(path, "rb") as file:
        return file.read()


rank, _ = join()
if rank == 2:
    load_shard(dead_pipe())
step()
