"""Shared by the labelled jobs: joining the group, healthy steps, and the READY line before the fault."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
#: Long enough that the nodes are sampled a few times before the fault.
HEALTHY_S = 4.0


def join(timeout_s=None):
    """Join the group of all ranks, make healthy steps, print READY; the rank."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=timeout_s or int(os.environ.get("JOIN_TIMEOUT_S", "60")))
    # A restarted job must not find the addresses of the attempt before it in the store of its launcher.
    store = next(dist.rendezvous("env://", RANK, WORLD_SIZE, timeout=timeout))[0] if ATTEMPT else None
    own = dist.PrefixStore(f"attempt-{ATTEMPT}", store) if store is not None else None
    numbers = {"store": own, "rank": RANK, "world_size": WORLD_SIZE} if own is not None else {}
    dist.init_process_group("gloo", timeout=timeout, **numbers)
    healthy()
    ready()
    return RANK


def healthy(seconds=HEALTHY_S):
    """Steps for that many seconds: the same number on every rank."""
    for _ in range(int(seconds / 0.1)):
        step()
        time.sleep(0.1)


def step():
    gradient = torch.ones(1024)
    dist.all_reduce(gradient)
    return gradient


def steps():
    """Train for ever."""
    while True:
        step()
        time.sleep(0.05)


def ready():
    """Print READY; for the test also a file in its folder."""
    sys.stdout.write(f"READY rank={RANK} pid={os.getpid()}\n")
    sys.stdout.flush()
    path = os.path.join(os.environ["READY_FOLDER"], f"rank{RANK}")
    with open(path + ".draft", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".draft", path)
