"""Rank 1 frees memory twice: the C library aborts it."""

import ctypes

from common import join, steps

if join() == 1:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(1 << 12)
    libc.free(block)
    libc.free(block)
steps()
