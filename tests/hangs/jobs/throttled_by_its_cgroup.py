"""Every rank computes as much in a step, but rank 2 may use a twentieth of a core: its cgroup throttles it."""

import os
import subprocess

import torch
from common import join, step

GROUP = f"/sys/fs/cgroup/cpu/job-{os.environ['MASTER_PORT']}"
REMOVES = f"while kill -0 {os.getpid()} 2> /dev/null; do sleep 1; done; rmdir {GROUP}"


def limit_processor():
    os.makedirs(GROUP, exist_ok=True)
    subprocess.Popen(["setsid", "sh", "-c", REMOVES])
    with open(f"{GROUP}/cpu.cfs_quota_us", "w") as file:
        file.write("5000")
    with open(f"{GROUP}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


def backward_pass():
    weights = torch.ones(200, 200)
    for _ in range(10):
        weights = (weights @ weights).clamp(0, 1)


rank, _ = join()
if rank == 2:
    limit_processor()
while True:
    backward_pass()
    step()
