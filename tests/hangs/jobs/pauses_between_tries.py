"""A healthy job in which rank 1 asks a service from time to time, and pauses for 11 s before it asks again."""

import threading
import time

from common import join, step

rank, _ = join()
pauses = [time.sleep, threading.Event().wait]
number = 0
while True:
    if rank == 1:
        pauses[number % 2](11)
    for _ in range(40):
        step()
        time.sleep(0.02)
    number += 1
