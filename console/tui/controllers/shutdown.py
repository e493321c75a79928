"""Shutdown: `q`, Ctrl-C twice, SIGTERM, SIGHUP, an error; Ctrl-Z suspends.

Textual waits for its last write. A terminal stopped with Ctrl-S, or a half-open connection, would block the process
for ever; after a signal the output is therefore discarded once `WRITE_TIMEOUT_S` has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from textual.actions import SkipAction
from textual.app import App
from textual.widgets import Input

from . import Controller

#: Seconds from the signal: until pending output is discarded, and until the process exits unconditionally.
WRITE_TIMEOUT_S, EXIT_TIMEOUT_S = 1.0, 4.5
_POLL_EVERY_S = 0.05
#: Seconds: the longest wait for `on_stop`, and when a line on stderr explains the wait.
STOP_TIMEOUT_S, STOP_NOTICE_S = 2.5, 0.4
#: Seconds within which a second Ctrl-C quits.
_TWICE_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class ShutdownController(Controller):
    """Ends the app. `before_stop` and then `on_stop` run with the terminal restored; `on_stop` has 2.5 seconds."""

    def __init__(self, app: App[Any], on_stop: Callable[[], Awaitable[None]] | None) -> None:
        self._app, self._on_stop = app, on_stop
        self.before_stop: Callable[[], None] = lambda: None
        self._interrupted_at = 0.0
        self._signals = SignalHandlers(lambda code: app.exit(return_code=code))

    async def run(self, app_run: Awaitable[None]) -> None:
        """Await the app's run, then stop what it started. Raises the error that ended the app."""
        self._signals.install()
        try:
            await app_run
        finally:
            self.before_stop()
            if self._on_stop is not None:
                await stop_in_time(self._on_stop)
            self._signals.restore()
        if self._app._exception is not None:
            raise self._app._exception

    def action_interrupt(self) -> None:
        """Ctrl-C: copy the selection; without one, the second press quits."""
        focused = self._app.focused
        if self._app.screen.get_selected_text() or (isinstance(focused, Input) and focused.selected_text):
            raise SkipAction
        if time.monotonic() - self._interrupted_at <= _TWICE_S:
            self._app.exit()
            return
        self._interrupted_at = time.monotonic()
        self._app.notify("press Ctrl-C again to quit", timeout=_TWICE_S)

    def action_suspend(self) -> None:
        """Suspend the process; a session leader has no shell that could resume it."""
        if os.getsid(0) == os.getpid():
            self._app.notify("cannot suspend: not started from a shell with job control", severity="warning")
        else:
            self._app.action_suspend_process()


class SignalHandlers:
    """On SIGTERM or SIGHUP calls `leave` in the event loop, with the exit code a shell expects."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._is_done = threading.Event()
        self._before: dict[int, signal.Handlers | int | Callable[[int, FrameType | None], object] | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._code: int | None = None

    def install(self) -> None:
        """Handle the signals from now on. Outside of the main thread nothing happens: there the caller owns them."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:  # not the loop's own handlers: they wait while the loop waits for the terminal
                self._before[number] = signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Put the previous handlers back, once the terminal is restored and the fleet has stopped.

        After SIGHUP the exit timeout goes on: it ends a process that has no terminal and waits for a thread.
        """
        if self._code != 128 + signal.SIGHUP:
            self._is_done.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._code is not None or self._loop is None:
            return
        self._code = 128 + number
        threading.Thread(target=self._enforce, args=(128 + number,), name="shutdown", daemon=True).start()
        self._loop.call_soon_threadsafe(self._leave, 128 + number)

    def _enforce(self, code: int) -> None:
        """Discard output that blocks after the write timeout; exit after the exit timeout."""
        began = time.monotonic()
        while not self._is_done.wait(_POLL_EVERY_S):
            waited = time.monotonic() - began
            if waited > EXIT_TIMEOUT_S:
                os._exit(code)
            if waited > WRITE_TIMEOUT_S:
                _discard_output()


async def stop_in_time(on_stop: Callable[[], Awaitable[None]]) -> None:
    """Await `on_stop` for at most `STOP_TIMEOUT_S`, then cancel it; print a notice when it is slow."""
    stopping = asyncio.ensure_future(on_stop())
    done, _ = await asyncio.wait({stopping}, timeout=STOP_NOTICE_S)
    if not done:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            print("closing connections …", file=sys.stderr, flush=True)
        done, _ = await asyncio.wait({stopping}, timeout=STOP_TIMEOUT_S - STOP_NOTICE_S)
    if done:
        stopping.result()
    else:
        stopping.cancel()


def _discard_output() -> None:
    """Point stderr, which Textual's writer thread writes to, at /dev/null, and interrupt its blocked system call."""
    assert sys.__stderr__ is not None
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.__stderr__.fileno())
    os.close(null)
    for thread in threading.enumerate():
        if thread.name == "textual-output" and thread.ident is not None:
            signal.pthread_kill(thread.ident, signal.SIGHUP)  # handled above, in Python, so it interrupts
