"""Rank 3 waits for a lock that one of its threads holds while it reads from a server that never answers."""

import socket
import threading

from common import join, silent_server, step

lock = threading.Lock()
held = threading.Event()


def upload_metrics():
    with lock:
        connection = socket.create_connection(silent_server())
        held.set()
        connection.recv(1)


rank, _ = join()
if rank == 3:
    threading.Thread(target=upload_metrics, daemon=True).start()
    held.wait()
    lock.acquire()
step()
