"""Rank 1 raises an error in the first attempts, so that the launcher restarts all ranks: no hang."""

import os
import time

from common import join, step

rank, _ = join()
for number in range(100):
    if number == 20 and rank == 1 and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 2:
        raise RuntimeError("a sample has no label")
    step()
    time.sleep(0.02)
while True:
    step()
    time.sleep(0.02)
