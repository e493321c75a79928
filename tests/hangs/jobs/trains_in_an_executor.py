"""Every rank trains in an executor's thread while the main one polls; rank 1 reads from a server that never answers."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist
from common import ready, silent_server, start, step


def run_epoch():
    start()
    ready()
    for number in range(10**9):
        if number == 50 and dist.get_rank() == 1:
            fetch_vocabulary(silent_server())
        step()
        time.sleep(0.01)


def fetch_vocabulary(address):
    with socket.create_connection(address) as connection:
        return connection.recv(4096)


with ThreadPoolExecutor(1) as pool:
    future = pool.submit(run_epoch)
    while not future.done():
        time.sleep(0.5)
