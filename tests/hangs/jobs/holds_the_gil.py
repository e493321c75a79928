"""Rank 1 calls into a C extension that blocks while holding the GIL."""

import ctypes

from common import join, step

rank, _ = join()
if rank == 1:
    ctypes.PyDLL(None).pause()
step()
