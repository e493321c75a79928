"""A job that ends while it is watched: nobody is to blame for what has come to its end."""

import time

import torch.distributed as dist
from common import join, step

join()
for _ in range(20):
    step()
    time.sleep(0.1)
dist.destroy_process_group()
