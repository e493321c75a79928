"""Rank 0 runs the garbage collector over a huge heap repeatedly."""

import gc

from common import join, step


def make_heap():
    return [[i, [i]] for i in range(1_500_000)]


def tidy_up(heap):
    while heap:
        gc.collect()


gc.disable()
rank, _ = join()
if rank == 0:
    tidy_up(make_heap())
step()
