"""All ranks save with torch.distributed.checkpoint; the write of rank 2 hangs, and the others wait for its result
inside the same call."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import dead_pipe, join


class SlowDisk(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        if dist.get_rank() == 2:
            with open(dead_pipe(), "wb") as file:
                file.write(b"weights")
        return super().write_data(plan, planner)


rank, _ = join()
state = {f"layer{rank}": torch.ones(1000)}
dcp.save(state, storage_writer=SlowDisk(tempfile.mkdtemp()))
