"""Rank 1 sleeps in user code (a retry with an endless back-off)."""

import time

from common import join, step


def fetch_learning_rate():
    time.sleep(36000)


rank, _ = join()
if rank == 1:
    fetch_learning_rate()
step()
