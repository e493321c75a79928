"""Garbage-collects closed connections: they are reference cycles.

Automatic collection would run about once an hour, with 1 MB accumulated; a process keeps its peak memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Final

#: Seconds after a loss, so that simultaneous losses share one collection.
AFTER_S: Final = 15.0
#: Pause after a collection, as a multiple of its duration (milliseconds in `record`, more with a large screen).
PAUSE: Final = 1_000


class GcSweep:
    """Garbage collection of one fleet."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0  # monotonic, s

    def soon(self) -> None:
        """Schedule a collection after a connection was lost."""
        if self._timer is None:
            due_s = max(AFTER_S, self._not_before - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(due_s, self._sweep)

    def close(self) -> None:
        """Cancel a scheduled collection."""
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = None
        started = time.monotonic()
        gc.collect()
        finished = time.monotonic()
        self._not_before = finished + PAUSE * (finished - started)
