"""All ranks wait for the same external service."""

import socket

from common import join, silent_server, step


def acquire_license(address):
    with socket.create_connection(address) as connection:
        return connection.recv(64)


join()
acquire_license(silent_server())
step()
