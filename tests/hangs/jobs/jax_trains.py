"""Healthy: JAX on several processes."""

import os

os.environ["HEALTHY"] = "1"
import jax_reads_a_file  # noqa: F401
