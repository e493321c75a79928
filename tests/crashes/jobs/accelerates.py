"""Rank 1 raises, under accelerate launch."""

from common import join, steps

if join() == 1:
    raise PermissionError("token for the model hub has expired")
steps()
