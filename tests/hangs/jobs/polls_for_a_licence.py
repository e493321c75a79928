"""All ranks poll: rank 1 for a licence that never comes, the others over files for rank 1."""

import os
import time

from file_barrier import meet_over_files
from plain import RANK, ready


def await_licence():
    while not os.path.exists("/nobody/grants/this"):
        time.sleep(0.2)


for number in range(10**6):
    meet_over_files(number)
    if number == 2:
        ready()
        if RANK == 1:
            await_licence()
