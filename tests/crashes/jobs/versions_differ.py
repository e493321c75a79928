"""All ranks find out that the versions of a library differ."""

import torch.distributed as dist
from common import RANK, WORLD_SIZE, join, steps

join()
store = dist.distributed_c10d._get_default_store()
store.set(f"version-{RANK}", "2.13.0" if RANK != 3 else "2.12.1")
versions = [store.get(f"version-{rank}").decode() for rank in range(WORLD_SIZE)]
if len(set(versions)) > 1:
    raise RuntimeError(f"version mismatch: the ranks use different versions of the library: {versions}")
steps()
