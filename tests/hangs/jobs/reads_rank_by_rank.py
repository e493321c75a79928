"""Without torch: ranks 1 to 3 wait for a broadcast of rank 0 over sockets; rank 0 takes a lock twice."""

import threading

from peers import connect, receive
from plain import RANK, WORLD, ready

connections = connect()
ready()
if RANK == 0:
    held = threading.Lock()
    held.acquire()
    held.acquire()
    for other in range(1, WORLD):
        connections[other].sendall(b"8 bytes!")
else:
    receive(connections[0], 8)
