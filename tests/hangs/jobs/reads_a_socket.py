"""Rank 1 reads from a server that never answers."""

import socket

from common import join, silent_server, step


def next_tokens(address):
    with socket.create_connection(address) as connection:
        return connection.recv(4096)


rank, _ = join()
if rank == 1:
    next_tokens(silent_server())
step()
