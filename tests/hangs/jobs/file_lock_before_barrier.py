"""The first rank of each node prepares the data under a file lock and enters the barrier while holding the lock;
the second rank of the node waits for the lock. Ranks 1 and 3 never enter the barrier."""

import fcntl
import os
import tempfile
from pathlib import Path

import torch.distributed as dist
from common import join


def prepare_data(local_rank):
    path = Path(tempfile.gettempdir(), f"data-{os.environ['MASTER_PORT']}.lock")
    with path.open("w") as file:
        if local_rank == 1:
            while not Path(f"{path}.taken").exists():
                pass
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(f"{path}.taken").touch()
        dist.barrier()


join()
prepare_data(int(os.environ["LOCAL_RANK"]))
