"""A healthy job in which rank 3 gives a thread that uploads logs 40 s to end, again and again; the others reduce."""

import queue

from common import join, step

rank, _ = join()
uploads = queue.Queue()
while True:
    if rank == 3:
        try:
            uploads.get(timeout=40)
        except queue.Empty:
            pass
    for _ in range(100):
        step()
