"""A data loader worker of rank 2 crashes in native code."""

import ctypes

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if self.rank == 2 and index == 40:
            ctypes.string_at(0)
        return torch.ones(4)


rank = join()
while True:
    for _ in DataLoader(Images(rank), batch_size=4, num_workers=1):
        step()
