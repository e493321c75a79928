"""MPI without torch: ranks poll while they wait. Rank 2 reads a FIFO without a writer, unless HEALTHY is set."""

import os
import sys
import time

if "OMPI_COMM_WORLD_RANK" not in os.environ:
    count = os.environ["PER_NODE"]
    os.execvp("mpirun", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", count, sys.executable, *sys.argv])

import numpy as np
from mpi4py import MPI

rank = MPI.COMM_WORLD.Get_rank()


def load_mesh():
    path = f"/tmp/mesh-{os.getpid()}"
    os.mkfifo(path)
    with open(path) as file:
        return file.read()


for number in range(10**9):
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, np.ones(100))
    if number == 5:
        sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
        sys.stdout.flush()
    if number == 20 and rank == 2 and not os.environ.get("HEALTHY"):
        load_mesh()
    time.sleep(0.02)
