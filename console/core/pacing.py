"""Pauses in work that a background thread does, so that the event loop does not wait for it."""

from __future__ import annotations

import time

#: Share of a core that paced work takes, and seconds of CPU between two pauses.
SHARE, SLICE_S = 1 / 3, 0.002


class Pacer:
    """Call it again and again in a thread that computes: it sleeps twice as long as the thread has computed since.

    The event loop releases the interpreter's lock with each system call, and gets it back only when another thread
    that computes has held it for 5 ms. A loop that sends to 400 nodes takes 2 s beside such a thread, and 0.3 s alone.
    """

    def __init__(self) -> None:
        self.is_off = False  # set it where the work must end soon
        self._paused_s: float | None = None  # CPU time of the thread at the end of the last pause

    def __call__(self) -> None:
        """Sleep if it is time; the first call begins to count."""
        if self._paused_s is None:
            self._paused_s = time.thread_time()
        computed_s = time.thread_time() - self._paused_s
        if computed_s >= SLICE_S and not self.is_off:
            time.sleep(computed_s * (1 / SHARE - 1))
            self._paused_s = time.thread_time()
