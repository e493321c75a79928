"""TCP connections between all ranks, for jobs that communicate without a framework."""

import json
import os
import socket

#: Ranks meet at the master's port plus this, so that torch may use the master's port.
OFFSET = 100


def connect(offset=OFFSET):
    """{rank: connected socket} of every other rank."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    server = socket.create_server(("0.0.0.0", 0), backlog=64)
    addresses = exchange(rank, world, server.getsockname()[1], offset)
    connections = {}
    for other in range(rank):
        connections[other] = socket.create_connection(tuple(addresses[other]))
        connections[other].sendall(b"%04d" % rank)
    for _ in range(world - rank - 1):
        connection, _ = server.accept()
        connections[int(receive(connection, 4))] = connection
    server.close()
    return connections


def exchange(rank, world, port, offset):
    """The address of every rank's server, through rank 0."""
    meeting = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + offset)
    if rank:
        with dial(meeting) as connection:
            own = connection.getsockname()[0]
            connection.sendall(json.dumps([rank, own, port]).encode() + b"\n")
            return json.loads(connection.makefile().readline())
    addresses = [[meeting[0], port]] + [None] * (world - 1)
    members = []
    with socket.create_server(meeting, backlog=64) as server:
        for _ in range(world - 1):
            connection, _ = server.accept()
            other, host, its_port = json.loads(connection.makefile().readline())
            addresses[other] = [host, its_port]
            members.append(connection)
    for connection in members:
        connection.sendall(json.dumps(addresses).encode() + b"\n")
        connection.close()
    return addresses


def dial(address, attempts=600):
    """A connection to a server that may not have started yet."""
    import time

    for _ in range(attempts):
        try:
            return socket.create_connection(address)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(address)


def receive(connection, size):
    """Exactly `size` bytes."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data
