"""A data loader worker of rank 2 fails an assertion."""

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        assert not (self.rank == 2 and index == 40), f"sample {index} has no label"
        return torch.ones(4)


rank = join()
while True:
    for _ in DataLoader(Shards(rank), batch_size=4, num_workers=1):
        step()
