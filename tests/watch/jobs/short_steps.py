"""Steps of STEP_S seconds, uneven by STEP_JITTER, that end with an all_reduce; rank 0 prints the mean of the newest.

No variable is watched, and no library of training is used: the steps show in what the ranks exchange.
"""

import os
import random
import time
from collections import deque

import torch
import torch.distributed as dist

NEWEST_S, PRINTED_S = 60.0, 5.0

step_s, jitter = float(os.environ["STEP_S"]), float(os.environ["STEP_JITTER"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
chance, values = random.Random(7), torch.ones(1 << 17)
ends = deque(maxlen=1 + max(10, round(NEWEST_S / step_s)))
due = printed = time.monotonic()
while True:
    due += step_s * chance.gauss(1.0, jitter)
    time.sleep(max(0.0, due - time.monotonic()))
    dist.all_reduce(values)
    ends.append(time.monotonic())
    if dist.get_rank() == 0 and len(ends) > 1 and ends[-1] - printed > PRINTED_S:
        printed = ends[-1]
        print("MEAN %.6f" % ((ends[-1] - ends[0]) / (len(ends) - 1)), flush=True)
