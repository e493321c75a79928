"""Rank 0 cannot listen on the port of the rendezvous: another program does."""

import os
import socket
import time

from common import RANK, join, steps

if RANK == 0:
    other = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    time.sleep(4)
join(timeout_s=20)
steps()
