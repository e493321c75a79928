"""Rank 3 joins a thread that reads from a file that never returns data."""

import threading
from pathlib import Path

from common import dead_pipe, join, step


def stage_in(path):
    Path(path).read_bytes()


rank, _ = join()
if rank == 3:
    thread = threading.Thread(target=stage_in, args=(dead_pipe(),), name="stage-in", daemon=True)
    thread.start()
    thread.join()
step()
