"""Ranks 0 and 1, on one node, each hold one file lock and wait for the other's; ranks 2 and 3 reduce."""

import fcntl
import os
import time

from common import join, step

PATHS = [f"/var/tmp/shard-{os.environ['MASTER_PORT']}-{name}.lock" for name in "ab"]


def lock_both(first, second):
    with open(first, "w") as outer, open(second, "w") as inner:
        fcntl.flock(outer, fcntl.LOCK_EX)
        time.sleep(1)
        fcntl.flock(inner, fcntl.LOCK_EX)


rank, _ = join()
if rank < 2:
    lock_both(*PATHS[:: 1 if rank == 0 else -1])
step()
