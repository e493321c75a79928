"""Lines of a terminal, a pipe or a file: written and read in threads, so that neither side delays the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ...text.sanitize import Printable

#: Characters of an input line; longer ones are cut.
LONGEST_LINE: Final = 4_096


class LineWriter:
    """Writes lines to stdout in a thread, so that a stopped terminal does not delay the nodes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[Printable] | None] = queue.SimpleQueue()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self.has_failed = False
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether everything was written."""
        return self._is_idle.is_set()

    def write(self, lines: Sequence[Printable]) -> None:
        """Write these lines, each with its end."""
        if lines:
            self._is_idle.clear()
            self._queue.put(list(lines))

    def close(self, timeout_s: float) -> None:
        """Write what is queued, for at most so long."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive() or self.has_failed:
            sys.stdout = None  # its flush at exit would wait for the terminal, or fail

    def _run(self) -> None:
        while (lines := self._queue.get()) is not None:
            try:
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
            except (OSError, ValueError):  # the terminal or the reader of the pipe is gone
                self.has_failed = True
                return
            if self._queue.empty():
                self._is_idle.set()


class LineReader:
    """Reads lines from stdin in a thread: a file cannot be waited for in an event loop."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self.has_ended = False
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._part = b""
        self._secret: asyncio.Future[str | None] | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = asyncio.Lock()

    def start(self) -> None:
        """Read from now on; in the thread of the event loop."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(self._loop,), name="input", daemon=True).start()

    def arrival(self) -> asyncio.Future[None]:
        """Completes with the next line, or with the end of the input."""
        assert self._loop is not None
        if self._arrived is None or self._arrived.done():
            self._arrived = self._loop.create_future()
        return self._arrived

    async def read_secret(self, prompt: Callable[[], object]) -> str | None:
        """The next line, which the terminal does not show, after `prompt` was called; None if it is empty.

        None without a terminal: a line of a pipe is a command, not an answer.
        """
        if not self.is_terminal or self.has_ended:
            return None
        async with self._asking:
            self._secret = asyncio.get_running_loop().create_future()
            self._echo(False)
            try:
                prompt()
                return await self._secret
            finally:
                self._secret = None
                self._echo(True)

    def _echo(self, is_shown: bool) -> None:
        """Whether the terminal shows what is typed."""
        with contextlib.suppress(termios.error):  # the terminal is gone
            state = termios.tcgetattr(0)
            state[3] = state[3] | termios.ECHO if is_shown else state[3] & ~termios.ECHO
            termios.tcsetattr(0, termios.TCSADRAIN, state)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                data = os.read(0, 65_536)
            except OSError:  # the terminal was closed
                data = b""
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._accept, data)
            if not data:
                return

    def _accept(self, data: bytes) -> None:
        *lines, part = (self._part + data).split(b"\n")
        self._part = part[:LONGEST_LINE] if data else b""
        self.has_ended = self.has_ended or not data
        for line in [*lines, part] if not data and part else lines:
            self._take(line[:LONGEST_LINE].decode(errors="replace").strip())
        if not data and self._secret is not None and not self._secret.done():
            self._secret.set_result(None)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _take(self, line: str) -> None:
        if self._secret is not None and not self._secret.done():
            self._secret.set_result(line or None)
        else:
            self.lines.append(line)
