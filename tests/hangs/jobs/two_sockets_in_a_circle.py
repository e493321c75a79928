"""Without torch: ranks 0 and 1 each receive from the other before they send; the others wait for rank 0."""

from peers import connect, receive
from plain import RANK, ready

connections = connect()
ready()
receive(connections[1 if RANK == 0 else 0], 8)
