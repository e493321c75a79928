"""Rank 2 hangs; the collectives of the others time out, as torch's watchdog reports it, and they dump and abort."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import join

rank, world_size = join()
group = dist.new_group(range(world_size), timeout=timedelta(seconds=3))


class Watchdog(threading.Thread):
    """Waits for a failure, then writes the dump and aborts, while the main thread waits for that."""

    def __init__(self):
        super().__init__(name="pt_nccl_watchdg", daemon=True)
        self.failed, self.aborted = threading.Event(), threading.Event()
        self.start()

    def run(self):
        self.failed.wait()
        self.dump_debug_info()

    def dump_debug_info(self):
        while not self.aborted.is_set():
            time.sleep(0.1)


watchdog = Watchdog()
if rank == 2:
    time.sleep(36000)
try:
    dist.all_reduce(torch.ones(1024), group=group)
except RuntimeError:
    watchdog.failed.set()
    watchdog.aborted.wait()
