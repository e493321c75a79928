"""Rank 2's DataLoader worker is stopped (SIGSTOP)."""

import os
import signal

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, stuck):
        self.stuck = stuck

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if self.stuck and index == 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(4)


rank, _ = join()
for _ in DataLoader(Samples(rank == 2), batch_size=2, num_workers=1):
    step()
