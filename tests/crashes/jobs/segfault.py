"""Rank 3 dereferences a null pointer in native code."""

import ctypes

from common import join, steps

if join() == 3:
    ctypes.string_at(0)
steps()
