"""Rank 0 dereferences a null pointer in native code, with faulthandler enabled."""

import ctypes
import faulthandler

from common import join, steps

faulthandler.enable()


def copy_to_pinned_memory():
    ctypes.string_at(0)


if join() == 0:
    copy_to_pinned_memory()
steps()
