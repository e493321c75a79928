"""Rank 0 waits for a child process that does not end."""

import subprocess

from common import join, step

rank, _ = join()
if rank == 0:
    subprocess.run(["sleep", "36000"], check=True)
step()
