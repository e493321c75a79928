"""Rank 1 dies during the diagnosis, and the script that started the ranks of its node does not reap it."""

import os
import signal
import subprocess
import sys
import time

if "RANK" not in os.environ:
    per_node = int(os.environ["PER_NODE"])
    first = int(os.environ["NODE_NUMBER"]) * per_node
    started = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "RANK": str(first + i), "LOCAL_RANK": str(i), "LOCAL_WORLD_SIZE": str(per_node)},
        )
        for i in range(per_node)
    ]
    while True:
        time.sleep(60)

import torch.distributed as dist
from common import join, steps

rank, _ = join()
if rank == 1:
    time.sleep(4)
    os.kill(os.getpid(), signal.SIGSEGV)
try:
    steps()
except RuntimeError:
    dist.distributed_c10d._get_default_store().get("rank-1-is-back")
