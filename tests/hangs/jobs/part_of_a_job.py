"""Two replicas without a common collective: one trains; in the other rank 3 waits for a server, and rank 2 for it."""

import socket
import time

import torch
import torch.distributed as dist
from common import join, silent_server

rank, _ = join()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
number = 0
while True:
    number += 1
    if rank == 3 and number == 5:
        socket.create_connection(silent_server()).recv(1)
    dist.all_reduce(torch.ones(64), group=groups[rank // 2])
    time.sleep(0.05)
