"""A healthy job: its ranks compute, and check torch's store until all have done so, after each step."""

import time

from plain import RANK, ready
from store_barrier import meet_over_store


def multiply():
    until = time.monotonic() + 0.1 + 0.05 * RANK
    while time.monotonic() < until:
        sum(range(1000))


for number in range(10**6):
    multiply()
    meet_over_store(number)
    if number == 2:
        ready()
