"""Healthy: rank 3 imports from slow storage, module after module; the others are in init_process_group."""

import os
import sys
import tempfile

import torch
from common import ready, steps

if os.environ["RANK"] == "3":
    ready()
    folder = tempfile.mkdtemp()
    sys.path.insert(0, folder)
    for number in range(10**6):
        name = f"module_{number}"
        with open(os.path.join(folder, f"{name}.py"), "w") as file:
            file.write("import time\ntime.sleep(0.2)\nvalues = [0] * 100_000\n")
        __import__(name)
ready()
torch.distributed.init_process_group("gloo")
steps()
