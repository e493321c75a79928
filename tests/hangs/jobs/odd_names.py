"""Rank 1 sleeps in a function, a file and a thread whose names are markup, control characters and no UTF-8."""

import os
import runpy
import tempfile
import threading
import time

from common import join, step

TEXT = """
import time
def сон_待(self="[blink]"):
    time.sleep(36000)
сон_待()
"""

rank, _ = join()
if rank == 1:
    folder = tempfile.mkdtemp().encode()
    path = os.path.join(folder, b"[red]bold\xff[b] \x1b[31mtrain$(reboot).py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TEXT)
    threading.Thread(target=time.sleep, args=(36000,), name="[link=file:///]\x1b[2J\udcff", daemon=True).start()
    runpy.run_path(os.fsdecode(path))
step()
