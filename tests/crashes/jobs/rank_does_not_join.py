"""Rank 3 never joins; the others give up."""

import time

from common import RANK, join, steps

if RANK == 3:
    time.sleep(3600)
join(timeout_s=8)
steps()
