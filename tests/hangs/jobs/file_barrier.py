"""Shared by jobs whose ranks meet over a folder: each leaves a file, and polls until the files of all are there."""

import os
import time

from plain import RANK, WORLD

FOLDER = f"/var/tmp/meet-{os.environ['MASTER_PORT']}"


def meet_over_files(number, pause_s=0.1):
    os.makedirs(FOLDER, exist_ok=True)
    open(f"{FOLDER}/{number}-{RANK}", "w").close()
    for other in range(WORLD):
        while not os.path.exists(f"{FOLDER}/{number}-{other}"):
            time.sleep(pause_s)
    if number > 4:
        os.unlink(f"{FOLDER}/{number - 5}-{RANK}")
