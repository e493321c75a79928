"""A ring all-reduce over TCP in plain Python: a real multi-process job for machines without torch.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment, as every launcher sets them; RING_ADDR is the
address this rank can be reached at. Each step sums a vector over all ranks, passing it around the ring, and sleeps a
little. Prints "READY rank=… pid=…" after the first step. SIGTERM to any rank ends all of them after the same step.
Runs on Python 3.6 and newer, because nodes of the rig may have an old interpreter.
"""

import operator
import os
import signal
import socket
import struct
import sys
import time

STEP_S = 0.05
WIDTH = 64
CONNECT_DEADLINE_S = 30.0
stopping = False


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    signal.signal(signal.SIGTERM, ask_to_stop)
    before, behind = join_ring(rank, world_size)
    step = 0
    while True:
        # One extra value: the number of ranks that want to stop. All ranks learn it in the same step.
        total = all_reduce([float(rank + step)] * WIDTH + [1.0 if stopping else 0.0], world_size, before, behind)
        assert total[0] == sum(range(world_size)) + step * world_size, total[0]
        if step == 0:
            sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")  # one write: ranks may share the file
            sys.stdout.flush()
        if total[-1] > 0:
            return
        step += 1
        time.sleep(STEP_S)


def ask_to_stop(number, frame):
    global stopping
    stopping = True


def join_ring(rank, world_size):
    """The sockets from the previous and to the next rank; every rank gets its neighbour's address from rank 0."""
    listener = socket.socket()
    listener.bind((os.environ.get("RING_ADDR", "127.0.0.1"), 0))
    listener.listen(1)
    own = ":".join(map(str, listener.getsockname()))
    places = collect_places(world_size, own) if rank == 0 else report_place(rank, own)
    host, port = places[(rank + 1) % world_size].split(":")
    behind = connect((host, int(port)))
    before, _ = listener.accept()
    listener.close()
    return before, behind


def collect_places(world_size, own):
    places = {0: own}
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    listener.listen(world_size)
    guests = []
    while len(places) < world_size:
        guest, _ = listener.accept()
        rank, place = guest.makefile("r").readline().split()
        places[int(rank)] = place
        guests.append(guest)
    table = " ".join(places[rank] for rank in range(world_size)) + "\n"
    for guest in guests:
        guest.sendall(table.encode())
        guest.close()
    listener.close()
    return table.split()


def report_place(rank, own):
    master = connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    master.sendall(f"{rank} {own}\n".encode())
    places = master.makefile("r").readline().split()
    master.close()
    return places


def connect(place):
    deadline = time.monotonic() + CONNECT_DEADLINE_S
    while True:
        try:
            return socket.create_connection(place, timeout=None)
        except OSError:  # the neighbour has not started yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def all_reduce(vector, world_size, before, behind):
    """The sum over all ranks: each value travels once around the ring and every rank adds its own."""
    total, passing = list(vector), list(vector)
    for _ in range(world_size - 1):
        send(behind, passing)
        passing = receive(before, len(vector))
        total = list(map(operator.add, total, passing))
    return total


def send(sink, vector):
    sink.sendall(struct.pack(f"<{len(vector)}d", *vector))


def receive(source, count):
    data = b""
    while len(data) < 8 * count:
        chunk = source.recv(8 * count - len(data))
        if not chunk:
            raise ConnectionError("the rank before left the ring")
        data += chunk
    return list(struct.unpack(f"<{count}d", data))


if __name__ == "__main__":
    main()
