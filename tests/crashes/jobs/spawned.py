"""A process of mp.spawn raises: rank 1; its parent reports it."""

import os

import torch.multiprocessing as mp


def run(index):
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(index)
    from common import join, steps

    if join() == 1:
        raise IndexError("list index of the schedule out of range")
    steps()


if __name__ == "__main__":
    mp.spawn(run, nprocs=int(os.environ["PER_NODE"]))
