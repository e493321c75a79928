"""A healthy job: every rank tokenizes each batch in a pool of two processes, and reduces."""

import multiprocessing
import time

from common import join, step


def tokenize_line(number):
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        sum(range(100))
    return number


if __name__ == "__main__":
    pool = multiprocessing.get_context("fork").Pool(2)
    join()
    while True:
        pool.map(tokenize_line, range(8))
        step()
