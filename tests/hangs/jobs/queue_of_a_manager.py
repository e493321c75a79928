"""Rank 1 takes from a queue of a multiprocessing manager into which nobody puts; the others reduce."""

import multiprocessing

from common import join, step


def take_sample(queue):
    return queue.get()


if __name__ == "__main__":
    rank, _ = join()
    if rank == 1:
        with multiprocessing.get_context("fork").Manager() as manager:
            take_sample(manager.Queue())
    step()
