"""Every rank trains in a thread that its main thread joins; the training thread of rank 2 sleeps in its step."""

import threading
import time

import torch.distributed as dist
from common import ready, start, step


def training():
    start()
    ready()
    for number in range(10**9):
        if number == 50 and dist.get_rank() == 2:
            rebalance()
        step()
        time.sleep(0.01)


def rebalance():
    time.sleep(36000)


thread = threading.Thread(target=training, name="trainer")
thread.start()
thread.join()
