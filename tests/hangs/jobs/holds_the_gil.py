"""Rank 1 calls into a C extension that blocks and keeps the interpreter's lock."""

import ctypes

from common import join, step

rank, _ = join()
if rank == 1:
    ctypes.PyDLL(None).pause()
step()
