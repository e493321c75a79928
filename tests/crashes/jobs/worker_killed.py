"""The data loader worker of rank 0 is killed."""

import os
import signal

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if self.rank == 0 and index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4)


rank = join()
while True:
    for _ in DataLoader(Shards(rank), batch_size=4, num_workers=1):
        step()
