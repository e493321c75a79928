"""Rank 1 waits for its DataLoader, one of whose workers hangs in __getitem__."""

import time

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, stuck):
        self.stuck = stuck

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return self.decode(index)

    def decode(self, index):
        if self.stuck and index == 5:
            time.sleep(36000)
        return torch.ones(4)


rank, _ = join()
for _ in DataLoader(Samples(rank == 1), batch_size=2, num_workers=2):
    step()
