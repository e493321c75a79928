"""Shared by the labelled jobs without torch: a FIFO whose other end is never opened."""

import os
import tempfile


def dead_pipe():
    path = os.path.join(tempfile.mkdtemp(), "shard-00023.bin")
    os.mkfifo(path)
    return path
