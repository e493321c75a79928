"""Ranks 1 to 3 poll every half second for a file that rank 0 writes after the barrier in which it already waits."""

import tempfile
import time
from pathlib import Path

import torch.distributed as dist
from common import join


def wait_for_file(path):
    while not path.exists():
        time.sleep(0.5)


rank, _ = join()
vocabulary = Path(tempfile.mkdtemp(), "vocabulary.json")
if rank != 0:
    wait_for_file(vocabulary)
dist.barrier()
vocabulary.touch()
