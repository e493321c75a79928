"""Rank 1 receives from rank 0 over a socket, while rank 0 is in the all_reduce that rank 1 has not entered."""

import torch.distributed as dist
from common import ready, start, step
from peers import connect, receive

start()
connections = connect()
ready()
if dist.get_rank() == 1:
    receive(connections[0], 8)
step()
