"""Rank 2 reads a mapped file that was cut meanwhile: SIGBUS."""

import mmap
import os

from common import RANK, join, steps

path = os.path.join(os.environ["CHECKPOINTS"], f"cache-{RANK}")
with open(path, "wb") as file:
    file.truncate(1 << 20)
with open(path, "r+b") as file:
    cache = mmap.mmap(file.fileno(), 1 << 20)
if join() == 2:
    os.truncate(path, 0)
    bytes(cache[:4096])
steps()
