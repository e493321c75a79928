"""Rank 1: two threads acquire two locks in opposite orders."""

import threading

from common import join, step

cache, index = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def refresh():
    with index:
        both.wait()
        with cache:
            pass


rank, _ = join()
if rank == 1:
    threading.Thread(target=refresh, daemon=True).start()
    with cache:
        both.wait()
        with index:
            pass
step()
