"""Ranks of one node wait for a counter in shared memory, polling it; rank 1, who should set it, reads a FIFO."""

import os
import struct
import time
from multiprocessing import shared_memory

from common_plain import dead_pipe
from plain import RANK, ready

HEALTHY = bool(os.environ.get("HEALTHY"))
name = f"gconsole-test-{os.environ['MASTER_PORT']}"
if RANK == 0:
    ring = shared_memory.SharedMemory(name, create=True, size=64)
else:
    while not os.path.exists(f"/dev/shm/{name}"):
        time.sleep(0.05)
    time.sleep(0.2)
    ring = shared_memory.SharedMemory(name)


def tokenize():
    with open(dead_pipe(), "rb") as file:
        return file.read()


def acquire_read(number):
    while struct.unpack_from("q", ring.buf)[0] < number:
        time.sleep(0.001)


for number in range(1, 10**9):
    if number == 50:
        ready()
    if RANK == 1:
        if number == 60 and not HEALTHY:
            tokenize()
        time.sleep(0.01)
        struct.pack_into("q", ring.buf, 0, number)
    acquire_read(number)
