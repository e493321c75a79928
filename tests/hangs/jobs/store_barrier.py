"""Shared by jobs whose ranks meet over torch's store by polling: each sets a key, and checks those of all."""

import os
import time
from datetime import timedelta

import torch.distributed as dist
from plain import RANK, WORLD

store = dist.TCPStore(
    os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 170, WORLD, RANK == 0, timedelta(hours=1),
    wait_for_workers=False,
)  # fmt: skip


def meet_over_store(number):
    store.set(f"{number}/{RANK}", "1")
    while True:
        if store.check([f"{number}/{other}" for other in range(WORLD)]):
            return
        time.sleep(0.1)
