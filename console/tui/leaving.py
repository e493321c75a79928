"""The way out when a signal asks for it: like `q`, but not at the mercy of a terminal that takes no more output.

Textual waits for its last write. A terminal stopped with Ctrl-S, or a dead link that nobody noticed yet, would keep the
process for ever; somebody who sends SIGTERM has decided otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable

#: Longest time from the signal to the end of the process, in seconds.
LIMIT_S = 6.0
_EVERY_S = 0.05


class Leaving:
    """Calls `leave` with the exit code a shell expects when SIGTERM or SIGHUP comes."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._done = threading.Event()

    def watch(self) -> None:
        """From now on, in the running event loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self._asked, 128 + number)
            except (ValueError, RuntimeError):
                return  # not the main thread: whoever runs us there owns the signals

    def done(self) -> None:
        """The terminal is restored and the fleet has stopped."""
        self._done.set()

    def _asked(self, code: int) -> None:
        threading.Thread(target=self._hurry, args=(code,), name="leaving", daemon=True).start()
        self._leave(code)

    def _hurry(self, code: int) -> None:
        """Throw away what the terminal does not take, so that the last write returns; give up at the limit."""
        end = time.monotonic() + LIMIT_S
        while not self._done.wait(_EVERY_S):
            if time.monotonic() > end:
                os._exit(code)
            try:
                termios.tcflush(sys.__stderr__, termios.TCOFLUSH)  # where Textual draws
            except (termios.error, ValueError, TypeError):
                continue  # no terminal any more: nothing waits for it
