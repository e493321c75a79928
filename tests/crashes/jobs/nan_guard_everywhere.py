"""All ranks stop because the reduced loss is not a number."""

import torch
import torch.distributed as dist
from common import join, steps

rank = join()
loss = torch.tensor(float("nan") if rank == 2 else 0.5)
dist.all_reduce(loss)
if loss.isnan():
    raise FloatingPointError(f"loss is {loss.item()} after the reduction")
steps()
