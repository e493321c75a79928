"""Metrics are gathered as objects; rank 0 has not entered, because it waits for a file lock."""

import fcntl
import tempfile

import torch.distributed as dist
from common import join

rank, world_size = join()
if rank == 0:
    with tempfile.NamedTemporaryFile() as mine, open(mine.name) as other:
        fcntl.flock(mine, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
dist.all_gather_object([None] * world_size, {"loss": 1.0})
