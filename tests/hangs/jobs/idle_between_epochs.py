"""A healthy job between two epochs: all ranks sleep."""

import time

from common import join, step


def wait_for_window():
    time.sleep(3600)


join()
while True:
    step()
    wait_for_window()
