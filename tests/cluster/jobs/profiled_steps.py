"""Steps of one all_reduce under torch.profiler; each rank exports its trace to TRACES when GLOO_STOP_FILE appears."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

STEP_S = 0.02


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, stop = dist.get_rank(), os.environ.get("GLOO_STOP_FILE")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        ends = torch.zeros(1)
        for step in range(10**9):
            if step == 3:
                sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
                sys.stdout.flush()
            time.sleep(STEP_S)
            dist.all_reduce(
                ends.fill_(float(stop is not None and Path(stop).exists()))
            )  # all ranks end after the same step
            if ends.item():
                break
    profiler.export_chrome_trace(f"{os.environ['TRACES']}/rank{rank}.pt.trace.json")
    dist.barrier()
    dist.destroy_process_group()


main()
