"""Ranks of mpirun; rank 1 raises."""

import os
import sys

if "OMPI_COMM_WORLD_RANK" not in os.environ and "PMI_RANK" not in os.environ:
    options = ["--allow-run-as-root", "--oversubscribe", "-n", os.environ["PER_NODE"]]
    os.execvp("mpirun", ["mpirun", *options, sys.executable, __file__])
os.environ["RANK"] = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]

from common import join, steps

if join() == 1:
    raise OverflowError("sequence longer than the position table")
steps()
