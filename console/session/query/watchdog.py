"""A question that takes too long, or that nobody wants an answer to any more, is interrupted."""

from __future__ import annotations

import threading
import time
from typing import Final

import duckdb

#: How often it is looked whether a question is to end, in seconds.
LOOK_S: Final = 0.05


class Watch:
    """Interrupts a question that is cancelled or takes too long: what it took counts while it is watched."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, deadline_s: float, cancelled: threading.Event) -> None:
        self.deadline_s, self.is_over = deadline_s, False
        self._connection, self._cancelled = connection, cancelled
        self._end = time.monotonic() + deadline_s

    def __enter__(self) -> None:
        self._done = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _wait(self) -> None:
        """Interrupt again and again: an engine that has not begun yet does not hear it."""
        while not self._done.wait(LOOK_S):
            self.is_over = time.monotonic() >= self._end
            if self.is_over or self._cancelled.is_set():
                self._connection.interrupt()
