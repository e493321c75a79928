"""Garbage collection for records that are replaced all the time: seldom of young objects, and of old ones by time.

The records of a tick live until the next one. CPython collects young objects every 700 allocations: most of the last
tick's are alive then, are walked in vain, and count as old although the next tick frees them. It collects old objects
once a quarter more of them was allocated: at 8,192 ranks once a second for 90 ms. Closed connections are reference
cycles: with few nodes automatic collection would free them about once an hour, with 1 MB accumulated, and a process
keeps its peak memory; so old objects are also collected soon after connections were lost.

The collector is that of the process: fleets of several clusters share its thresholds and what it did for any of them.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from typing import Final

import msgspec

#: Seconds after a loss, so that simultaneous losses share one collection.
AFTER_S: Final = 15.0
#: Seconds between two collections without any loss.
EVERY_S: Final = 60.0
#: Allocations, less deallocations, between two collections of young objects. A screen with 16 GPUs makes 1,400 a
#: second; each collection stops the event loop for about 1 ms per 1,000 of them.
YOUNG: Final = 5_000
#: Collections of younger objects until old ones are collected automatically: never.
_NEVER: Final = 1 << 30
#: Pause after a collection, as a multiple of its duration (milliseconds in `record`, more with a large screen).
PAUSE: Final = 1_000


class _Process(msgspec.Struct):
    """The garbage collector, which all fleets of the process share."""

    fleets: int = 0  # that run
    thresholds: tuple[int, int, int] = (0, 0, 0)  # those of before the first fleet
    collected_s: float = -math.inf  # end of the last collection of all objects, monotonic
    not_before_s: float = -math.inf  # when the next one may begin, monotonic

    def enter(self) -> None:
        """Collect old objects by `GcSweep` from now on."""
        if self.fleets == 0:
            self.thresholds = gc.get_threshold()
            gc.set_threshold(YOUNG, self.thresholds[1], _NEVER)
        self.fleets += 1

    def leave(self) -> None:
        """Collect automatically again after the last fleet."""
        self.fleets -= 1
        if self.fleets == 0:
            gc.set_threshold(*self.thresholds)

    def collect(self) -> None:
        """Collect all objects."""
        started = time.monotonic()
        gc.collect()
        self.collected_s = time.monotonic()
        self.not_before_s = self.collected_s + PAUSE * (self.collected_s - started)


_process = _Process()


class GcSweep:
    """Garbage collection of old objects, for one fleet."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._requested_s = 0.0  # when a collection was last requested, monotonic
        self._is_started = False

    def start(self) -> None:
        """Collect old objects every `EVERY_S` instead of automatically, until `close`."""
        if not self._is_started:
            self._is_started = True
            _process.enter()
            self._schedule(EVERY_S)

    def soon(self) -> None:
        """Schedule a collection after a connection was lost."""
        self._schedule(AFTER_S)

    def close(self) -> None:
        """Cancel a scheduled collection; without another fleet, old objects are collected automatically again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_started:
            self._is_started = False
            _process.leave()

    def _schedule(self, after_s: float) -> None:
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        self._requested_s = now_s
        due_s = loop.time() + max(after_s, _process.not_before_s - now_s)
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due_s, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        if _process.collected_s < self._requested_s:  # else another fleet has collected since
            _process.collect()
        if self._is_started:
            self._schedule(EVERY_S)
