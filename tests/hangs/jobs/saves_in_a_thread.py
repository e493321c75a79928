"""Healthy: rank 0 writes a checkpoint in a thread while all ranks train on."""

import os
import tempfile
import threading
import time

from common import join, steps


def write_slowly():
    with tempfile.TemporaryFile() as file:
        while True:
            file.seek(0)
            file.write(os.urandom(1 << 16))
            file.flush()
            time.sleep(0.1)


rank, _ = join()
if rank == 0:
    threading.Thread(target=write_slowly, daemon=True).start()
steps()
