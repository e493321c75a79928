"""Rank 1 waits for a file lock that rank 0, on the same node, holds while it waits for a service; the others reduce."""

import fcntl
import os
import socket
import time

from common import join, silent_server, step

PATH = f"/var/tmp/lock-{os.environ['MASTER_PORT']}"


def build_extension():
    with open(PATH, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with socket.create_connection(silent_server()) as connection:
            connection.recv(100)


rank, _ = join()
if rank == 0:
    build_extension()
elif rank == 1:
    time.sleep(2)
    with open(PATH, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
step()
