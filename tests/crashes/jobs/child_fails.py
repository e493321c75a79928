"""Ends well, although a program that each rank runs fails."""

import subprocess
import sys

import torch.distributed as dist
from common import healthy, join

join()
code = "raise RuntimeError('evaluation of the probe failed')"
done = subprocess.run([sys.executable, "-c", code], check=False)
print("evaluation ended with", done.returncode, flush=True)
healthy(3)
dist.destroy_process_group()
