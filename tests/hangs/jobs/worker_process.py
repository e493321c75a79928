"""Rank 2 waits at a multiprocessing queue for a process that died."""

import multiprocessing
import os

from common import join, step


def tokenize(results):
    os._exit(1)


rank, _ = join()
if rank == 2:
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    fork.Process(target=tokenize, args=(results,)).start()
    results.get()
step()
