"""A process of a pool of rank 3 ends at once: BrokenProcessPool."""

import os
from concurrent.futures import ProcessPoolExecutor

from common import join, steps


def tokenize(text):
    os._exit(9)


def prepare():
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(tokenize, "a text").result()


if join() == 3:
    prepare()
steps()
