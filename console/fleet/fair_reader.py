"""Fair scheduling of record processing: one node's lines in time slices, limited to its share of the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .quotas import TokenBucket

#: Seconds. Upper bound on one slice of record processing per node, so that other nodes are not delayed. One tick
#: of eight GPUs takes half of it.
SLICE_S = 0.002
#: Lines between two checks of the clock.
_LINES_PER_CHECK = 8
#: Seconds. Maximum pause of a node above its quota; longer would look like silence.
MAX_PAUSE_S = 1.0
#: Seconds above quota until it is reported; a lingering agent's backlog of minutes is processed by then.
LATE_S = 5.0

#: A line and its arrival (console time, ns).
Line = tuple[bytes, int]


class FairReader:
    """Queues the lines of one node and passes them to `process` in order, once each.

    `process` consumes lines until its iterator ends; `set_paused` applies back-pressure. `share` is event-loop time in
    seconds. `report_overload` is called once per overload, after `LATE_S`.
    """

    def __init__(
        self, process: Callable[[Iterator[Line]], None], set_paused: Callable[[bool], None], share: TokenBucket,
        report_overload: Callable[[], None],
    ) -> None:  # fmt: skip
        self._process, self._set_paused, self._share, self._report_overload = (
            process,
            set_paused,
            share,
            report_overload,
        )
        self._report_at: float | None = None  # monotonic time of the report; infinity once reported
        self._queue: deque[Line] = deque()
        self._pause_timer: asyncio.Handle | None = None  # the next slice follows
        self._is_paused = False
        self._on_drained: Callable[[], None] | None = None

    def add(self, lines: Iterable[bytes], rx: int) -> None:
        """Queue lines that arrived at `rx`; they are processed at once unless paused."""
        self._queue.extend((line, rx) for line in lines)
        if self._pause_timer is None:
            self._next()

    def finish(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the queue is empty."""
        if self._queue and self._on_drained is None:
            self._on_drained = callback
        elif not self._queue:
            callback()

    def clear(self) -> None:
        """Drop the queue."""
        self._queue.clear()
        self._on_drained = None
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _next(self) -> None:
        """Process the next slice, then pause if over quota; otherwise resume reading."""
        self._pause_timer = None
        if self._queue:
            started = time.monotonic()
            self._process(self._slice(started + SLICE_S))
            pause_s = self._share.spend(time.monotonic() - started)
            self._check_overload(pause_s)
            if self._queue or pause_s > 0:
                self._update_paused(paused=True)
                self._pause_timer = asyncio.get_running_loop().call_later(min(pause_s, MAX_PAUSE_S), self._next)
                return
        self._update_paused(paused=False)
        if self._on_drained is not None:
            callback, self._on_drained = self._on_drained, None
            callback()

    def _check_overload(self, pause_s: float) -> None:
        now = time.monotonic()
        if self._share.is_half_full:
            self._report_at = None
        elif self._report_at is None:
            self._report_at = now + LATE_S if pause_s > 0 else None
        elif now >= self._report_at:
            self._report_at = math.inf
            self._report_overload()

    def _slice(self, until: float) -> Iterator[Line]:
        count = 0
        while self._queue:
            yield self._queue.popleft()
            count += 1
            if count % _LINES_PER_CHECK == 0 and time.monotonic() > until:
                return

    def _update_paused(self, *, paused: bool) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            self._set_paused(paused)
