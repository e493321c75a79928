"""A healthy job in which rank 1 asks a service that is overloaded, and backs off for 45 s before it asks again."""

import time

from common import join, step

rank, _ = join()
while True:
    if rank == 1:
        time.sleep(45)
    for _ in range(100):
        step()
        time.sleep(0.02)
