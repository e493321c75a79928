"""Without torch: ranks meet over files after each step; rank 2 opens a FIFO that nobody writes to."""

from common_plain import dead_pipe
from file_barrier import meet_over_files
from plain import RANK, ready


def read_catalogue():
    with open(dead_pipe()) as file:
        return file.read()


for number in range(10**6):
    meet_over_files(number)
    if number == 2:
        ready()
        if RANK == 2:
            read_catalogue()
