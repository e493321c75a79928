"""Rank 1 raises an error two seconds after each start, and torchrun starts all ranks again: no hang."""

import time

from common import join, step

rank, _ = join()
began = time.monotonic()
while True:
    if rank == 1 and time.monotonic() > began + 2:
        raise RuntimeError("a sample has no label")
    step()
    time.sleep(0.02)
