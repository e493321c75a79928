"""Rank 0 reads from an unattended terminal."""

import os
import pty

from common import join, step

rank, _ = join()
if rank == 0:
    ours, theirs = pty.openpty()
    os.dup2(theirs, 0)
    input("overwrite the checkpoint? [y/N]\n")
step()
