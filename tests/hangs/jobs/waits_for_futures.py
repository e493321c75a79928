"""Rank 2 waits for all futures of an executor, one of whose threads reads from a server that never answers."""

import concurrent.futures
import socket

from common import join, silent_server, step


def fetch_shard(number):
    if number == 3:
        socket.create_connection(ADDRESS).recv(10)
    return number


rank, _ = join()
ADDRESS = silent_server()
if rank == 2:
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        concurrent.futures.wait([executor.submit(fetch_shard, number) for number in range(8)])
step()
