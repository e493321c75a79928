"""Healthy: a DataLoader whose batches take 3 to 25 s."""

import random
import time

import torch
from common import join, reduce
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        read_remotely()
        return torch.rand(1000)


def read_remotely():
    time.sleep(random.choice((0.4, 0.6, 1.0, 3.0)))


if __name__ == "__main__":
    join()
    gradients = torch.ones(100_000)
    for _batch in DataLoader(Shards(), batch_size=8, num_workers=1, prefetch_factor=1):
        reduce(gradients)
