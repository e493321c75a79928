"""A scheduled job: at each all_reduce all ranks arrive at an agreed time, except for one late rank.

LATE is a list of [process group, rank, lateness in ns, "stamped" or "planned"]: the groups alternate, and in each
that rank is late. For "planned" groups the worker server returns the planned arrival times, see `clock_proxy`.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from clock_proxy import NodeClock, Plans, worker_server

BEAT_NS = 60_000_000
#: sleep() is accurate to a fraction of a millisecond: the rest is a busy wait.
_AWAKE_NS = 300_000


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plans = Plans()
    with worker_server(NodeClock(), plans):
        run(dist.get_rank(), plans)


def run(rank: int, plans: Plans) -> None:
    late = json.loads(os.environ["LATE"])
    groups = [dist.new_group(group_desc=name) for name, *_ in late]
    beat = together(groups[0])
    sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
    sys.stdout.flush()
    while True:
        for group, (name, late_rank, late_ns, timing) in zip(groups, late, strict=True):
            mine = beat + (late_ns if rank == late_rank else 0)
            if timing == "planned":
                plans.add(name, mine)
            wait_until(mine)
            beat = together(group)


def together(group: dist.ProcessGroup) -> int:
    """Synchronise all ranks, and agree on the next arrival time."""
    now = torch.tensor([time.clock_gettime_ns(time.CLOCK_REALTIME)])
    dist.all_reduce(now, dist.ReduceOp.MAX, group=group)
    return int(now[0]) + BEAT_NS


def wait_until(real: int) -> None:
    left = real - time.clock_gettime_ns(time.CLOCK_REALTIME)
    time.sleep(max(0, left - _AWAKE_NS) / 1e9)
    while time.clock_gettime_ns(time.CLOCK_REALTIME) < real:
        pass


main()
