"""Healthy: Lightning."""

import os

os.environ["HEALTHY"] = "1"
import lightning_pushes_metrics  # noqa: F401
