"""Rank 0 alone is in all_reduce; all others wait for their DataLoaders: the minority is not the culprit."""

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
        if self.stuck and index >= 4:
            time.sleep(36000)
        return torch.ones(4)


rank, _ = join()
for _ in DataLoader(Samples(rank != 0), batch_size=2, num_workers=1):
    step()
