"""Rank 3 polls a flag of its own thread, which reads from a server that never answers; the others reduce."""

import socket
import threading
import time

from common import join, silent_server, step

is_fetched = []


def fetch_prompts(address):
    socket.create_connection(address).recv(10)
    is_fetched.append(True)


rank, _ = join()
if rank == 3:
    threading.Thread(target=fetch_prompts, args=(silent_server(),), daemon=True).start()
    while not is_fetched:
        time.sleep(0.1)
step()
