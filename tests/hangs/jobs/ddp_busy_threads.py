"""DistributedDataParallel with a busy thread in every rank (a metrics sampler); rank 3 waits for a lock."""

import threading

import torch
from common import ready, start
from torch.nn.parallel import DistributedDataParallel

lock = threading.Lock()


def sample_metrics():
    while True:
        sum(range(1000))


def log(stuck):
    with lock:
        if stuck:
            lock.acquire()


start()
threading.Thread(target=sample_metrics, daemon=True).start()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for number in range(1000):
    loss = model(torch.rand(8, 64)).sum()
    if number == 3:
        ready()
    log(number == 3 and torch.distributed.get_rank() == 3)
    loss.backward()
