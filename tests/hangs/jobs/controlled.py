"""Shared by the jobs whose controller, which is no rank, calls methods of all workers: starting them, and workers."""

import os
import pickle
import socket
import struct
import subprocess
import sys
import time

ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 77
METHODS = "roll_out", "score", "learn_step"


def take_part(script, drive_workers, worker):
    """Start the ranks of this node, and on the first node the controller; be one of them if this process is."""
    if "CONTROLS" in os.environ:
        drive_workers(int(os.environ["WORLD_SIZE"]))
    elif "RANK" in os.environ:
        work(worker)
    else:
        start(script)


def start(script):
    per_node, number = int(os.environ.pop("PER_NODE")), int(os.environ.pop("NODE_NUMBER"))
    processes = []
    if number == 0:
        processes.append(subprocess.Popen([sys.executable, script], env={**os.environ, "CONTROLS": "yes"}))
    for i in range(per_node):
        rank = {"RANK": str(number * per_node + i), "LOCAL_RANK": str(i)}
        processes.append(subprocess.Popen([sys.executable, script], env={**os.environ, **rank}))
    for process in processes:
        process.wait()


def to_message(message):
    payload = pickle.dumps(message)
    return struct.pack("!I", len(payload)) + payload


def receive(connection):
    (size,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
    return pickle.loads(connection.recv(size, socket.MSG_WAITALL))


def connect():
    while True:
        try:
            return socket.create_connection(ADDRESS)
        except OSError:
            time.sleep(0.1)


def work(worker):
    from common import start

    start()
    connection = connect()
    while True:
        method, number = receive(connection)
        getattr(worker, method)(number)
        connection.sendall(to_message("done"))


class Worker:
    """A healthy one."""

    def roll_out(self, number):
        time.sleep(0.01)

    def score(self, number):
        if number == 20:
            from common import ready

            ready()

    def learn_step(self, number):
        from common import step

        step()
