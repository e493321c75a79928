"""Without torch: rank 0 waits for rank 1, that for rank 2, that for rank 3, which sleeps in its own code."""

import time

from peers import connect, receive
from plain import RANK, WORLD, ready


def wait_for_licence():
    time.sleep(36000)


connections = connect()
ready()
if RANK == WORLD - 1:
    wait_for_licence()
else:
    receive(connections[RANK + 1], 8)
