"""All ranks train for a while, in steps that the watch can see; then rank 2 does not call new_group, which all must."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(hours=1))
rank = dist.get_rank()
sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
sys.stdout.flush()
gradient = torch.ones(100_000)
until = torch.tensor([time.time() + float(os.environ["TRAINS_S"])], dtype=torch.float64)
dist.broadcast(until, 0)
while True:
    time.sleep(0.02)
    is_over = torch.tensor([float(time.time() > until.item())])
    dist.all_reduce(gradient)
    dist.all_reduce(is_over)
    if is_over.item() > 0:
        break
if rank == 2:
    time.sleep(36000)
dist.new_group(list(range(dist.get_world_size())))
