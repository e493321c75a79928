"""Rank 2 maps over a multiprocessing pool, and one worker reads a FIFO without a writer."""

import multiprocessing

from common import dead_pipe, join, step


def tokenize_document(path):
    if path:
        return len(open(path, "rb").read())
    return 0


rank, _ = join()
if rank == 2:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(tokenize_document, ["", dead_pipe(), ""], chunksize=1)
step()
