"""Rank 3 waits for a shell command in os.system."""

import os

from common import join, step

rank, _ = join()
if rank == 3:
    os.system("sleep 36000; true")
step()
