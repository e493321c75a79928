"""Rank 1 aborts in native code, as after a failed C++ assertion."""

import os
import sys

from common import join, steps

if join() == 1:
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    sys.stderr.flush()
    os.abort()
steps()
