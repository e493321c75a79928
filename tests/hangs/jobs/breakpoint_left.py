"""Rank 2 hits a breakpoint that was left in the code."""

import os
import pdb
import pty

from common import join, step


def training_step(batch):
    pdb.set_trace()
    return batch


rank, _ = join()
if rank == 2:
    ours, theirs = pty.openpty()
    os.dup2(theirs, 0)
    training_step([1])
step()
