"""A healthy job between two epochs: everybody sleeps, as schedulers of shared machines make them do."""

import time

from common import join, step


def wait_for_window():
    time.sleep(3600)


join()
while True:
    step()
    wait_for_window()
