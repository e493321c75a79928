"""Rank 3 reads its samples in the main process, and one read hangs."""

import torch
from common import dead_pipe, join, step
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, stuck):
        self.path = dead_pipe() if stuck else None

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if self.path and index == 3:
            with open(self.path, "rb") as file:
                return torch.frombuffer(file.read(), dtype=torch.uint8)
        return torch.ones(4)


rank, _ = join()
for _ in DataLoader(Samples(rank == 3), batch_size=2):
    step()
