"""Rank 1 reads the output of a program that never writes."""

import subprocess

from common import join, step

rank, _ = join()
if rank == 1:
    subprocess.check_output(["sh", "-c", "sleep 36000; echo done"])
step()
