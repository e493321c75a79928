"""Rank 1 receives a tensor from rank 2 over a socket, and rank 2 computes without end; the others are in all_reduce."""

import torch.distributed as dist
from common import ready, start, step
from peers import connect, receive


def sieve():
    number = 2
    while True:
        number += 1
        all(number % divisor for divisor in range(2, number))


start()
connections = connect()
ready()
if dist.get_rank() == 1:
    receive(connections[2], 8)
elif dist.get_rank() == 2:
    sieve()
step()
