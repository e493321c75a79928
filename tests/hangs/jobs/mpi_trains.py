"""Healthy: MPI without torch."""

import os

os.environ["HEALTHY"] = "1"
import mpi_loads_a_mesh  # noqa: F401
