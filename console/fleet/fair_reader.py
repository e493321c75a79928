"""What one node says, heard a little at a time: others are heard in between, and nobody takes more than a share."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .quotas import TokenBucket

#: So long takes one portion at most, and makes the words of others wait. A tick of eight GPUs takes half of it.
PORTION_S = 0.002
#: Lines between two looks at the clock.
_LOOK_EVERY = 8
#: A node that takes too much is not heard for so long at most: longer would look like silence.
MOST_REST_S = 1.0
#: A node that was over its share for so long is said to be; what a lingering agent kept for minutes is heard by then.
LATE_S = 5.0

#: A line, and when it arrived (console time, ns).
Line = tuple[bytes, int]


class FairReader:
    """Lines of one node on their way to `hear`, in order, each once.

    `hear` takes lines until there are no more for now; `hold` is told that nothing more shall come (true) until these
    are heard, and that it may come again. `share` is the time of the one thread that hears all nodes, in seconds.
    `say_late` is called once each time when more comes than is heard, for `LATE_S`.
    """

    def __init__(
        self, hear: Callable[[Iterator[Line]], None], hold: Callable[[bool], None], share: TokenBucket,
        say_late: Callable[[], None],
    ) -> None:  # fmt: skip
        self._hear, self._hold, self._share, self._say_late = hear, hold, share, say_late
        self._late_from: float | None = None  # when that is to be said; infinity: it was
        self._waiting: deque[Line] = deque()
        self._rest: asyncio.Handle | None = None  # the next portion is due after it
        self._is_held = False
        self._last: Callable[[], None] | None = None

    def add(self, lines: Iterable[bytes], rx: int) -> None:
        """Lines that arrived at `rx`; they are heard at once unless it is not their turn."""
        self._waiting.extend((line, rx) for line in lines)
        if self._rest is None:
            self._next()

    def finish(self, act: Callable[[], None]) -> None:
        """Nothing comes any more: do that, once everything has been heard."""
        if self._waiting and self._last is None:
            self._last = act
        elif not self._waiting:
            act()

    def clear(self) -> None:
        """What waits is not to be heard any more."""
        self._waiting.clear()
        self._last = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _next(self) -> None:
        """Hear the next portion, and rest after it; once there is none, more may come."""
        self._rest = None
        if self._waiting:
            began = time.monotonic()
            self._hear(self._portion(began + PORTION_S))
            rest_s = self._share.spend(time.monotonic() - began)
            self._look_how_late(rest_s)
            if self._waiting or rest_s > 0:
                self._hold_if_new(held=True)
                self._rest = asyncio.get_running_loop().call_later(min(rest_s, MOST_REST_S), self._next)
                return
        self._hold_if_new(held=False)
        if self._last is not None:
            act, self._last = self._last, None
            act()

    def _look_how_late(self, rest_s: float) -> None:
        now = time.monotonic()
        if self._share.is_half_full:
            self._late_from = None
        elif self._late_from is None:
            self._late_from = now + LATE_S if rest_s > 0 else None
        elif now >= self._late_from:
            self._late_from = math.inf
            self._say_late()

    def _portion(self, until: float) -> Iterator[Line]:
        count = 0
        while self._waiting:
            yield self._waiting.popleft()
            count += 1
            if count % _LOOK_EVERY == 0 and time.monotonic() > until:
                return

    def _hold_if_new(self, *, held: bool) -> None:
        if held != self._is_held:
            self._is_held = held
            self._hold(held)
