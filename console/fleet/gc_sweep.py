"""Frees what lost connections leave: their parts refer to each other, so that only the garbage collector can.

By itself it would come to that about once in an hour, with a megabyte piled up; a process keeps the most it ever took.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Final

#: After a loss, so that many nodes that are lost together are swept up after together.
AFTER_S: Final = 15.0
#: A sweep is followed by a pause of so many times what it took: some milliseconds in `record`, more on a large screen.
PAUSE: Final = 1_000


class GcSweep:
    """The garbage collection of one fleet."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0  # monotonic, s

    def soon(self) -> None:
        """A connection was lost."""
        if self._timer is None:
            due_s = max(AFTER_S, self._not_before - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(due_s, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = None
        began = time.monotonic()
        gc.collect()
        over = time.monotonic()
        self._not_before = over + PAUSE * (over - began)
