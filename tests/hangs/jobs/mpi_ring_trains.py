"""A healthy MPI job: every rank passes its part to the next one around a ring, and computes."""

import os
import sys
import time

if "OMPI_COMM_WORLD_RANK" not in os.environ:
    count = os.environ["PER_NODE"]
    os.execvp("mpirun", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", count, sys.executable, *sys.argv])

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
part, received = np.ones(1000), np.ones(1000)
for number in range(10**9):
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        sum(range(100))
    world.Sendrecv(part, (world.rank + 1) % world.size, recvbuf=received, source=(world.rank - 1) % world.size)
    if number == 5:
        sys.stdout.write(f"READY rank={world.rank} pid={os.getpid()}\n")
        sys.stdout.flush()
