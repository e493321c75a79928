"""Healthy: an inference engine whose main thread schedules and whose worker thread executes."""

import os

os.environ["HEALTHY"] = "1"
import engine_and_workers  # noqa: F401
