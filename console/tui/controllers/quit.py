"""The way out: the fleet is told, in time; and a signal leaves like `q`, whatever the terminal does.

Textual waits for its last write. A terminal stopped with Ctrl-S, or a dead link that nobody noticed yet, would keep the
process for ever; somebody who sends SIGTERM has decided otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType

#: How long the terminal is given for what is left to write, and the process for everything, in seconds from the signal.
PATIENCE_S, LIMIT_S = 1.0, 6.0
_EVERY_S = 0.05
#: Longest wait for the fleet, and after how much of it a line says what is being waited for.
STOP_S, SAY_S = 2.5, 0.4
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Leaving:
    """Calls `leave` in the event loop, with the exit code a shell expects, when SIGTERM or SIGHUP comes."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._done = threading.Event()
        self._before: dict[int, signal.Handlers | int | Callable[[int, FrameType | None], object] | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._code: int | None = None

    def watch(self) -> None:
        """From now on. Outside of the main thread nothing happens: whoever runs us there owns the signals."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:  # not the loop's own handlers: they wait while the loop waits for the terminal
                self._before[number] = signal.signal(number, self._asked)

    def done(self) -> None:
        """The terminal is restored and the fleet has stopped."""
        self._done.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self._code is not None or self._loop is None:
            return
        self._code = 128 + number
        threading.Thread(target=self._hurry, args=(128 + number,), name="leaving", daemon=True).start()
        self._loop.call_soon_threadsafe(self._leave, 128 + number)

    def _hurry(self, code: int) -> None:
        """Out of patience, let the output go nowhere, so that the write that hangs returns; give up at the limit."""
        began = time.monotonic()
        while not self._done.wait(_EVERY_S):
            waited = time.monotonic() - began
            if waited > LIMIT_S:
                os._exit(code)
            if waited > PATIENCE_S:
                _let_output_go_nowhere()


async def stop_in_time(on_stop: Callable[[], Awaitable[None]]) -> None:
    """Call it; with the terminal restored, say what takes so long; leave it alone after `STOP_S`."""
    stopping = asyncio.ensure_future(on_stop())
    done, _ = await asyncio.wait({stopping}, timeout=SAY_S)
    if not done:
        print("closing connections …", file=sys.stderr, flush=True)
        done, _ = await asyncio.wait({stopping}, timeout=STOP_S - SAY_S)
    if done:
        stopping.result()
    else:
        stopping.cancel()


def _let_output_go_nowhere() -> None:
    """Textual's writer thread writes to stderr. A signal ends its system call, and Python tries again: on /dev/null."""
    assert sys.__stderr__ is not None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stderr__.fileno())
    os.close(nowhere)
    for thread in threading.enumerate():
        if thread.name == "textual-output" and thread.ident is not None:
            signal.pthread_kill(thread.ident, signal.SIGHUP)  # handled above, in Python, so it interrupts
