"""Rank 1 waits for the result of a process of an executor, which waits for a server."""

import multiprocessing
import socket
from concurrent.futures import ProcessPoolExecutor

from common import join, silent_server, step


def fetch_shard(address):
    connection = socket.create_connection(address)
    return len(connection.recv(1 << 20))


rank, _ = join()
if rank == 1:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        shard = executor.submit(fetch_shard, silent_server()).result()
step()
