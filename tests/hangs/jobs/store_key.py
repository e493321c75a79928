"""The others wait at the store for a key that rank 0 sets; rank 0 waits for a child process."""

import subprocess

import torch.distributed as dist
from common import join, step

rank, _ = join()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    revision = subprocess.run(["sleep", "36000"], check=True)
    store.set("revision", "1")
else:
    store.get("revision")
step()
