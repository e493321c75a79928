"""Ranks 1, 4 and 6 of eight are late, each for a different reason."""

import socket
import time

from common import dead_pipe, join, silent_server, step

rank, _ = join()
if rank == 1:
    time.sleep(36000)
elif rank == 4:
    open(dead_pipe(), "rb").read()
elif rank == 6:
    socket.create_connection(silent_server()).recv(1)
step()
