"""A worker of rank 3's data loader waits for a file lock that a process outside of the job holds; the others reduce."""

import fcntl
import os
import subprocess
import time

import torch
from common import join, step
from torch.utils.data import DataLoader, Dataset

PATH = f"/var/tmp/cache-{os.environ['MASTER_PORT']}.lock"


class Cached(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 30 and rank == 3:
            with open(PATH, "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
        return torch.ones(4)


if __name__ == "__main__":
    rank, _ = join()
    if rank == 3:
        subprocess.Popen(["flock", PATH, "sleep", "100000"])
        while not os.path.exists(PATH):
            time.sleep(0.1)
        time.sleep(0.5)
    for _ in DataLoader(Cached(), batch_size=4, num_workers=2):
        step()
