"""Rank 3 has too little GPU memory (the message alone: there is no GPU here)."""

import torch
from common import join, steps


def forward():
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.06 GiB is "
        "free. Including non-PyTorch memory, this process has 78.04 GiB memory in use. Of the allocated memory 70.12 "
        "GiB is allocated by PyTorch, and 6.90 GiB is reserved by PyTorch but unallocated."
    )


if join() == 3:
    forward()
steps()
