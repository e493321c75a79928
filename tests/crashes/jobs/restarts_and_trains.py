"""Rank 1 fails in the first attempt; the second one goes on training."""

from common import ATTEMPT, join, steps

if join() == 1 and ATTEMPT == 0:
    raise TimeoutError("the file server did not respond")
steps()
