"""Rank 1 ends with exit code 0 while the others go on."""

from common import join, steps

if join() == 1:
    raise SystemExit(0)
steps()
