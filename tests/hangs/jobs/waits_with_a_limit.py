"""A healthy job in which rank 2 waits for a message of a service for at most 40 s, and goes on without one."""

import socket

from common import join, silent_server, step

rank, _ = join()
connection = socket.create_connection(silent_server())
connection.settimeout(40)
while True:
    if rank == 2:
        try:
            connection.recv(10)
        except TimeoutError:
            pass
    for _ in range(100):
        step()
