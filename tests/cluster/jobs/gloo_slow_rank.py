"""A job of which one rank may be slow: SLOW names how, LATE_S by how much in each step, RANK_SLOW which rank, or all.

healthy: all ranks alike; loader: its data come late; network: they come late over a connection, for which its main
thread waits; compute: it computes more; uneven: every rank is slow in turn.
With DDP the steps are those of DistributedDataParallel, which waits in its backward pass. A step has COLLECTIVES
all_reduces, of different sizes in turn. With WORKER_SERVER the ranks expose their flight recorders. Rank 0 prints the
median time of a step every 100 steps.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from functools import partial

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

SLOW, LATE_S = os.environ.get("SLOW", "healthy"), float(os.environ.get("LATE_S", "0.02"))
IS_SLOW = os.environ.get("RANK_SLOW", "1") in (os.environ["RANK"], "all")
COLLECTIVES = int(os.environ.get("COLLECTIVES", "1"))
WEIGHTS = torch.randn(64, 64)


def forward() -> torch.Tensor:
    activation = torch.ones(64, 64)
    for _ in range(20):
        activation = torch.tanh(activation @ WEIGHTS)
    return activation


def next_batch() -> None:
    time.sleep(0.002)
    if SLOW == "loader" and IS_SLOW:
        decode_images()
    if SLOW == "network" and IS_SLOW:
        fetch_shard()


def decode_images() -> None:
    time.sleep(LATE_S)


def fetch_shard() -> None:
    ends = socket.socketpair()
    threading.Timer(LATE_S, ends[1].send, [b"x"]).start()
    ends[0].recv(1)
    for end in ends:
        end.close()


def log_metrics() -> None:
    if SLOW == "compute" and IS_SLOW:
        began = time.perf_counter()
        while time.perf_counter() - began < LATE_S:
            sum(number * number for number in range(200))


def ddp_step(model: torch.nn.Module, _number: int) -> None:
    next_batch()
    loss = model(torch.ones(8, 64)).sum()
    log_metrics()
    loss.backward()


def step(number: int) -> None:
    next_batch()
    gradient = forward().clone()
    log_metrics()
    if SLOW == "uneven" and number % dist.get_world_size() == dist.get_rank():
        time.sleep(LATE_S)
    for index in range(COLLECTIVES):
        dist.all_reduce(gradient[: 1 + index % 7])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with contextlib.ExitStack() as stack:
        if os.environ.get("WORKER_SERVER"):
            stack.callback(_WorkerServer("::", 0).shutdown)
        run()


def run() -> None:
    one_step = step
    if os.environ.get("DDP"):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        one_step = partial(ddp_step, model)
    for number in range(3):
        one_step(number)
    sys.stdout.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")
    sys.stdout.flush()
    times: list[float] = []
    number = 3
    while True:
        began = time.perf_counter()
        one_step(number)
        number += 1
        times.append(time.perf_counter() - began)
        if dist.get_rank() == 0 and len(times) == 100:
            sys.stdout.write(f"step {1e3 * sorted(times)[50]:.3f} ms\n")
            sys.stdout.flush()
            times = []


if __name__ == "__main__":
    main()
