"""A healthy job on a live stream: rank 3 receives a record every 9 s, and the others wait for it in all_reduce."""

import socket
import threading
import time

from common import join, step


def produce(server):
    connection, _ = server.accept()
    while True:
        connection.sendall(b"r" * 1000)
        time.sleep(9)


rank, _ = join()
if rank == 3:
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=produce, args=(server,), daemon=True).start()
    stream = socket.create_connection(server.getsockname())
while True:
    if rank == 3:
        stream.recv(1000)
    step()
