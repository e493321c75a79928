"""Ranks check torch's store ten times a second until all have come; rank 2 opens a FIFO that nobody writes to."""

from common_plain import dead_pipe
from plain import RANK, ready
from store_barrier import meet_over_store


def read_weights():
    with open(dead_pipe(), "rb") as file:
        return file.read()


for number in range(10**6):
    meet_over_store(number)
    if number == 2:
        ready()
        if RANK == 2:
            read_weights()
