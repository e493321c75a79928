"""A job on a beat: at each all_reduce all ranks arrive at an instant they agreed on, one of them late.

LATE is a list of [process group, rank, by how many ns, "stamped" or "planned"]: the groups take turns, and in each
that rank is late. Of "planned" groups the worker server tells when ranks meant to arrive, see `stamping`.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from clock_proxy import NodeClock, Plans, worker_server

BEAT_NS = 60_000_000
#: Sleeping is exact to a fraction of a millisecond: the rest is waited for.
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
        for group, (name, late_rank, late_ns, told) in zip(groups, late, strict=True):
            mine = beat + (late_ns if rank == late_rank else 0)
            if told == "planned":
                plans.add(name, mine)
            wait_until(mine)
            beat = together(group)


def together(group: dist.ProcessGroup) -> int:
    """All ranks come together, and agree on when they do so next."""
    now = torch.tensor([time.clock_gettime_ns(time.CLOCK_REALTIME)])
    dist.all_reduce(now, dist.ReduceOp.MAX, group=group)
    return int(now[0]) + BEAT_NS


def wait_until(real: int) -> None:
    left = real - time.clock_gettime_ns(time.CLOCK_REALTIME)
    time.sleep(max(0, left - _AWAKE_NS) / 1e9)
    while time.clock_gettime_ns(time.CLOCK_REALTIME) < real:
        pass


main()
