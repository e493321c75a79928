"""Garbage collection of old objects by time instead of by count, and soon after connections were lost.

CPython collects them once a quarter more of them was allocated: at 8,192 ranks, whose figures are replaced all the
time, once a second for 90 ms. Closed connections are reference cycles: with few nodes automatic collection would free
them about once an hour, with 1 MB accumulated, and a process keeps its peak memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Final

#: Seconds after a loss, so that simultaneous losses share one collection.
AFTER_S: Final = 15.0
#: Seconds between two collections without any loss.
EVERY_S: Final = 60.0
#: Collections of younger objects until old ones are collected automatically: never.
_NEVER: Final = 1 << 30
#: Pause after a collection, as a multiple of its duration (milliseconds in `record`, more with a large screen).
PAUSE: Final = 1_000


class GcSweep:
    """Garbage collection of old objects, for one fleet."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0  # monotonic, s
        self._thresholds: tuple[int, int, int] | None = None  # those of before `start`

    def start(self) -> None:
        """Collect old objects every `EVERY_S` instead of automatically, until `close`."""
        if self._thresholds is None:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _NEVER)
            self._schedule(EVERY_S)

    def soon(self) -> None:
        """Schedule a collection after a connection was lost."""
        self._schedule(AFTER_S)

    def close(self) -> None:
        """Cancel a scheduled collection; old objects are collected automatically again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    def _schedule(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + max(after_s, self._not_before - time.monotonic())
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due_s, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        started = time.monotonic()
        gc.collect()
        finished = time.monotonic()
        self._not_before = finished + PAUSE * (finished - started)
        if self._thresholds is not None:
            self._schedule(EVERY_S)
