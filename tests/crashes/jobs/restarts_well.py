"""Rank 1 fails in the first attempt; the second one ends well."""

import torch.distributed as dist
from common import ATTEMPT, healthy, join

if join() == 1 and ATTEMPT == 0:
    raise TimeoutError("the file server did not respond")
healthy(6)
dist.destroy_process_group()
