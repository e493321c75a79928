"""Healthy, without torch: a token goes round from rank to rank, and each keeps it for a while."""

import time

from peers import connect, receive
from plain import RANK, WORLD, ready

connections = connect()
ready()
if RANK == 0:
    connections[1].sendall(b"8 bytes!")
while True:
    token = receive(connections[(RANK - 1) % WORLD], 8)
    time.sleep(0.2)
    connections[(RANK + 1) % WORLD].sendall(token)
