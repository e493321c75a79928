"""Rank 1 sleeps in a function, a file and a thread whose names are markup, control characters or invalid UTF-8."""

import os
import runpy
import tempfile
import threading

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
    files = [os.path.join(folder, name) for name in (b"[red]bold[b] \x1b[31mtrain$(reboot).py", b"\xff.py")]
    for path in files:
        with open(path, "w", encoding="utf-8") as file:
            file.write(TEXT)
    names = {"name": "[link=file:///]\x1b[2J", "daemon": True}
    threading.Thread(target=runpy.run_path, args=(os.fsdecode(files[1]),), **names).start()
    runpy.run_path(os.fsdecode(files[0]))
step()
