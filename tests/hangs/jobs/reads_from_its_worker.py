"""Rank 2 reads from a pipe that only its own child can write to, and the child sleeps."""

import os
import time

from common import join, step


def tokenize_forever(pipe):
    time.sleep(36000)
    os.write(pipe, b"done")


rank, _ = join()
if rank == 2:
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        tokenize_forever(theirs)
        os._exit(0)
    os.close(theirs)
    os.read(ours, 4096)
step()
