"""Rank 0 reads from each rank in a thread of its own, and its main thread waits for all of these; rank 2 sleeps."""

import threading
import time

from peers import connect, receive
from plain import RANK, WORLD, ready

connections = connect()
arrived = threading.Barrier(WORLD)


def read_updates(other):
    while True:
        receive(connections[other], 4)
        arrived.wait()
        arrived.wait()


def average_updates():
    arrived.wait()
    for connection in connections.values():
        connection.sendall(b"mean")
    arrived.wait()


def send_update(number):
    if RANK == 2 and number == 20:
        time.sleep(36000)
    connections[0].sendall(b"grad")
    receive(connections[0], 4)
    time.sleep(0.02)


if RANK == 0:
    for other in connections:
        threading.Thread(target=read_updates, args=(other,), daemon=True).start()
for number in range(10**9):
    if number == 5:
        ready()
    if RANK == 0:
        average_updates()
    else:
        send_update(number)
