"""Rank 2 waits for the future of a worker thread, which waits for a server."""

import socket
from concurrent.futures import ThreadPoolExecutor

from common import join, silent_server, step


def fetch_shard():
    connection = socket.create_connection(silent_server())
    return connection.recv(1 << 20)


rank, _ = join()
if rank == 2:
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(fetch_shard)]
        shards = [future.result() for future in futures]
step()
