"""Rank 3 is slow in every second step, and fast in the others."""

import time

from common import join, step


def load_batch(slow):
    time.sleep(0.4 if slow else 0.02)


rank, _ = join()
number = 0
while True:
    load_batch(rank == 3 and number % 2 == 0)
    step()
    number += 1
