"""A thread of rank 2 raises, and its handler ends the process."""

import os
import threading

from common import join, steps


def prefetch():
    raise OverflowError("queue of the prefetcher is full")


def end(args):
    threading.__excepthook__(args)
    os._exit(1)


threading.excepthook = end
if join() == 2:
    threading.Thread(target=prefetch, name="prefetcher").start()
steps()
