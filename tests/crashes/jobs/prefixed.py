"""Rank 3 raises; each line of its output carries the rank."""

import sys
import traceback

from common import join, steps


def hook(kind, value, trace):
    for line in "".join(traceback.format_exception(kind, value, trace)).splitlines():
        sys.stderr.write(f"[rank3]: {line}\n")
    sys.stderr.flush()


def resize(image):
    return image.thumbnail


rank = join()
if rank == 3:
    sys.excepthook = hook
    resize(None)
steps()
