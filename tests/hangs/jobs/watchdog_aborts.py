"""Rank 2 hangs; the collectives of the others time out, as torch's watchdog reports it, and they dump and abort."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import join

rank, world_size = join()
group = dist.new_group(range(world_size), timeout=timedelta(seconds=3))


failed, aborted = threading.Event(), threading.Event()


def heed_failures():
    """Waits for a failure, then writes the dump and aborts, while the main thread waits for that."""
    failed.wait()
    write_traces_then_abort()


def write_traces_then_abort():
    while not aborted.is_set():
        time.sleep(0.1)


threading.Thread(target=heed_failures, name="pt_nccl_watchdg", daemon=True).start()
if rank == 2:
    time.sleep(36000)
try:
    dist.all_reduce(torch.ones(1024), group=group)
except RuntimeError:
    failed.set()
    aborted.wait()
