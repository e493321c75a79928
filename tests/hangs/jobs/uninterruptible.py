"""Rank 1 is in D state (the parent of a vfork whose child does not call exec)."""

import os

from common import dead_pipe, join, steps

rank, _ = join()
if rank == 1:
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, dead_pipe(), os.O_RDONLY, 0)])
steps()
