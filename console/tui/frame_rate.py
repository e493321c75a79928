"""How often to draw: eight frames a second, two where the terminal cannot keep up (a slow link, a busy multiplexer).

A frame that is drawn while earlier ones still wait to be written only makes the picture older.
"""

from __future__ import annotations

from textual.driver import Driver

#: Frames per second of the clock, and every how many of its ticks is drawn where the terminal is slow.
RATE_HZ, SLOW_EVERY = 8, 4
#: From this long from a frame to its paint, or this many writes waiting, the terminal is slow (a frame is 3 writes).
SLOW_PAINT_S, SLOW_BACKLOG = 0.2, 12
#: So many quick paints in a row make it fast again; so many slow ones make it slow.
QUICK_RUN, SLOW_RUN = 16, 2


class FrameRateLimiter:
    """Fed with what painting took; says at each tick of the clock whether to draw."""

    def __init__(self) -> None:
        self.is_slow = False
        self._tick = 0
        self._run = 0  # paints in a row that speak for the other pace

    def is_due(self, backlog: int) -> bool:
        """One tick has passed. `backlog`: writes that the terminal has not taken yet."""
        self._tick += 1
        if backlog >= SLOW_BACKLOG:
            self.is_slow, self._run = True, 0
            return False
        return not self.is_slow or self._tick % SLOW_EVERY == 0

    def painted(self, seconds: float) -> None:
        """A frame is on its way to the terminal, that long after it was begun."""
        for_change = (seconds >= SLOW_PAINT_S) != self.is_slow
        self._run = self._run + 1 if for_change else 0
        if self._run >= (QUICK_RUN if self.is_slow else SLOW_RUN):
            self.is_slow, self._run = not self.is_slow, 0


def write_backlog(driver: Driver | None) -> int:
    """Writes queued for the terminal. Textual 8.2 keeps them in its writer thread and tells nobody; 0 where unknown."""
    writer = getattr(driver, "_writer_thread", None)
    queue = getattr(writer, "_queue", None)
    return queue.qsize() if queue is not None else 0
