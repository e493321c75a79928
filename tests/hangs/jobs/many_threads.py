"""Rank 1 has 200 waiting threads; its main thread sleeps."""

import threading
import time

from common import join, step

rank, _ = join()
if rank == 1:
    never = threading.Event()
    for number in range(200):
        threading.Thread(target=never.wait, name=f"loader-{number}", daemon=True).start()
    time.sleep(36000)
step()
