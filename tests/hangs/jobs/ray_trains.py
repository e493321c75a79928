"""Healthy: Ray Train."""

import os
import pathlib
import runpy

os.environ["HEALTHY"] = "1"
runpy.run_path(str(pathlib.Path(__file__).with_name("ray_waits_for_a_lease.py")), run_name="__main__")
