"""A healthy job: every rank polls a list that a thread fills three times a second, and reduces what comes."""

import threading
import time

from common import join, step

batches = []


def fill_batches():
    while True:
        time.sleep(0.3)
        batches.append(1)


def next_from_list():
    while not batches:
        time.sleep(0.01)
    return batches.pop()


join()
threading.Thread(target=fill_batches, daemon=True).start()
while True:
    next_from_list()
    step()
