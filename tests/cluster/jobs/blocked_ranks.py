"""Ranks of plain Python, each blocked as BLOCKED_<rank> selects: `lock` (a lock that its own thread holds), otherwise
in recv from a neighbour that never sends. Prints "READY rank=… pid=…" right before that; ends only by a signal.

Runs on Python 3.6 and newer.
"""

import os
import socket
import sys
import threading


def main():
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
    sys.stdout.flush()
    if os.environ.get(f"BLOCKED_{rank}") == "lock":
        take_twice()
    wait_for_neighbour()


def take_twice():
    lock = threading.Lock()
    with lock, lock:
        pass


def wait_for_neighbour():
    mine, theirs = socket.socketpair()
    mine.recv(1)
    theirs.close()


if __name__ == "__main__":
    main()
