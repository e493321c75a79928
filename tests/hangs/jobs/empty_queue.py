"""Rank 1 waits at a queue whose producer thread died with an exception."""

import queue
import threading

from common import join, step

batches = queue.Queue()


def produce():
    corpus = {}
    batches.put(corpus["tokens"])


rank, _ = join()
if rank == 1:
    threading.excepthook = lambda args: None
    threading.Thread(target=produce, daemon=True).start()
    batches.get()
step()
