"""Healthy and slow: every rank reads each batch from a slow file system, for seconds."""

import time

from common import join, step


def read_batch():
    parts = []
    for _ in range(80):
        time.sleep(0.05)
        parts.append(open(__file__, "rb").read(64))
    return parts


join()
while True:
    read_batch()
    step()
