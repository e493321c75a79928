"""Healthy: each rank awaits rollouts of an inference engine, a process of its own."""

import os

os.environ["HEALTHY"] = "1"
import engine_in_a_child  # noqa: F401
