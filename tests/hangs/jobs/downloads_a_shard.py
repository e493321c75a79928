"""Rank 1 receives a shard piece by piece over a slow connection, in one recv() call after another; the others wait."""

import socket
import threading
import time

from common import join, step


def serve_slowly(server):
    client, _ = server.accept()
    while True:
        client.sendall(b"x" * 2000)
        time.sleep(0.4)


def fetch_pieces(address):
    with socket.create_connection(address) as connection:
        for _ in range(10**9):
            connection.recv(1 << 16)


rank, _ = join()
if rank == 1:
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_slowly, args=(listening,), daemon=True).start()
    fetch_pieces(listening.getsockname())
step()
