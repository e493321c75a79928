"""Values derived from the store: recomputed when a source changed, throttled, in a thread where it is much work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
#: Runs a coroutine in the background, such as `asyncio.create_task` or a worker of the screen.
InBackground = Callable[[Coroutine[None, None, None]], object]


class Versioned(Protocol):
    """A store, or whatever counts its changes."""

    @property
    def version(self) -> int:
        """Grows with every change."""


class Throttle:
    """When repeated work may run again: `every_s` after its last start, and never while it runs.

    Work is followed by a pause of `pause` times the CPU time that it needed, so that it takes at most 1 / (pause + 1)
    of a core, but of no more than `longest_pause_s`. Time in which it waits for a core or for other threads does not
    prolong the pause: on a busy machine that would be minutes. `clock` is monotonic, in seconds; a clock that is not
    the system's also counts CPU time. `cost_s` may be set while the work runs, to the CPU seconds that it needed in all
    threads.
    """

    def __init__(
        self, every_s: float, pause: float = 0.0, clock: Callable[[], float] = time.monotonic, *,
        longest_pause_s: float = float("inf"),
    ) -> None:  # fmt: skip
        self.is_busy = False
        self.cost_s: float | None = None
        self._every_s, self._pause, self._clock = every_s, pause, clock
        self._cpu_clock = time.thread_time if clock is time.monotonic else clock
        self._longest_pause_s = longest_pause_s
        self._due_s = float("-inf")

    @property
    def is_due(self) -> bool:
        """True where the work may run now."""
        return not self.is_busy and self._clock() >= self._due_s

    @contextmanager
    def running(self, *, reschedule: bool = True) -> Iterator[None]:
        """Mark the work as running until it ends or fails; with `reschedule` it counts for the interval."""
        began_s, began_cpu_s = self._clock(), self._cpu_clock()
        self.is_busy, self.cost_s = True, None
        try:
            yield
        finally:
            self.is_busy = False
            if reschedule:
                cost_s = self._cpu_clock() - began_cpu_s if self.cost_s is None else self.cost_s
                pause_s = min(self._longest_pause_s, self._pause * cost_s)
                self._due_s = max(began_s + self._every_s, self._clock() + pause_s)


class Derived(Generic[T]):
    """A value computed from a store. `value` is the newest result, `initial` before the first.

    `sources` return something true where they changed after a version of the store, such as `Table.changed_since`.
    `compute` runs where the store lives, copies what it needs, and returns the work, which any thread may do: in
    a thread from `thread_above` units of `size` on.
    """

    def __init__(
        self, store: Versioned, sources: Sequence[Callable[[int], object]], compute: Callable[[], Callable[[], T]],
        initial: T, *, every_s: float = 0.0, size: Callable[[], float] = lambda: 0.0,
        thread_above: float = float("inf"), pause: float = 0.0, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.value = initial
        self._store, self._sources, self._compute = store, tuple(sources), compute
        self._size, self._thread_above = size, thread_above
        self._throttle = Throttle(every_s, pause, clock)
        self._version = -1  # of the store, up to which `value` accounts for changes
        self.is_stale = False  # `invalidate` was called, or the last computation was cancelled

    @property
    def is_busy(self) -> bool:
        """True while a thread computes."""
        return self._throttle.is_busy

    @property
    def is_due(self) -> bool:
        """True where `refresh` would recompute after a change."""
        return self._throttle.is_due

    @property
    def has_news(self) -> bool:
        """True where a source changed since the last computation began, or `invalidate` was called."""
        return self.is_stale or any(changed(self._version) for changed in self._sources)

    @property
    def is_current(self) -> bool:
        """True where `value` accounts for everything in the store."""
        return not self.is_busy and not self.has_news

    def invalidate(self) -> None:
        """Recompute at the next opportunity, also without a change in the store."""
        self.is_stale = True

    def refresh(self, in_background: InBackground) -> None:
        """Recompute where that is due and something changed: now if it is little work, else `in_background`."""
        if not self._throttle.is_due or not self.has_news:
            return
        if self._size() < self._thread_above:
            with self._throttle.running():
                self.value = self._begin()()
            return
        work = self._begin()
        self._throttle.is_busy = True  # from now on, not from when the background task starts
        in_background(self._in_thread(work))

    async def update(self) -> T:
        """Recompute where something changed, without regard to the throttle; returns the newest value."""
        if self.has_news and not self.is_busy:
            if self._size() >= self._thread_above:
                await self._in_thread(self._begin())
            else:
                with self._throttle.running():
                    self.value = self._begin()()
        return self.value

    def _begin(self) -> Callable[[], T]:
        work = self._compute()
        self._version, self.is_stale = self._store.version, False
        return work

    async def _in_thread(self, work: Callable[[], T]) -> None:
        with self._throttle.running():
            try:
                self.value, self._throttle.cost_s = await asyncio.to_thread(timed, work)
            except asyncio.CancelledError:
                self.invalidate()
                raise


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of some work, and the CPU seconds of this thread for it."""
    began_s = time.thread_time()
    return work(), time.thread_time() - began_s
