"""Healthy: accelerate with data loader workers."""

import os

os.environ["HEALTHY"] = "1"
import accelerate_loader  # noqa: F401
