"""Rank 0 collects garbage over a huge heap, again and again."""

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
