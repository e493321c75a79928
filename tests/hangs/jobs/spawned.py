"""Ranks that get their rank number at run time (torch.multiprocessing.spawn); rank 3 sleeps."""

import os
import time

import torch.multiprocessing as mp
from common import join, step


def work(local_rank, first):
    os.environ["RANK"] = str(first + local_rank)
    os.environ["LOCAL_RANK"] = str(local_rank)
    rank, _ = join()
    if rank == 3:
        time.sleep(36000)
    step()


if __name__ == "__main__":
    per_node = int(os.environ.pop("PER_NODE"))
    mp.spawn(work, (int(os.environ.pop("NODE_NUMBER")) * per_node,), per_node)
