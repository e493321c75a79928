"""Textual driver of a screen in a browser: output is queued for a websocket, whose messages are its input."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from textual import constants, events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.geometry import Size

#: Bytes that wait for a browser; one that leaves more unread is disconnected.
MAX_QUEUED: Final = 4 << 20
_BEGIN: Final = "\x1b[?1049h\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?25l\x1b[?2026$p\x1b[?2004h"


class SlowReaderError(Exception):
    """The browser does not read what is drawn for it."""


class OutputQueue:
    """Bytes from a screen to its browser, at most `MAX_QUEUED`."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._has_overflowed = False
        self._ready = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Writes that were not sent yet."""
        return len(self._chunks)

    def put(self, data: bytes) -> None:
        """Queue output; nothing is kept after an overflow."""
        if self._size + len(data) > MAX_QUEUED:
            self._has_overflowed = True
            self._chunks.clear()
        if not self._has_overflowed:
            self._chunks.append(data)
            self._size += len(data)
        self._ready.set()

    async def receive(self) -> bytes:
        """All queued output, once there is some. Raises SlowReaderError after an overflow."""
        await self._ready.wait()
        self._ready.clear()
        if self._has_overflowed:
            raise SlowReaderError
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return data


class BrowserDriver(Driver):
    """Writes to `output`. It has no thread: `feed` is called in the event loop of the app."""

    def __init__(
        self, app: App[Any], *, output: OutputQueue, debug: bool = False, mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._output = output
        self._parser = XTermParser(debug)
        self._is_open = True

    @property
    def is_web(self) -> bool:
        """There is no terminal to suspend to, and no file system of the user."""
        return True

    @property
    def backlog(self) -> int:
        """Writes that the browser has not received yet."""
        return self._output.backlog

    def write(self, data: str) -> None:
        """Queue output."""
        self._output.put(data.encode(errors="replace"))

    def start_application_mode(self) -> None:
        """Prepare the browser's terminal, and tell the app its size."""
        self.write(_BEGIN)
        size = Size(*(self._size or (80, 24)))
        self.send_message(events.Resize(size, size))
        self._app.call_later(self._app.post_message, events.AppBlur())

    def disable_input(self) -> None:
        """Ignore input from now on."""
        self._is_open = False

    def stop_application_mode(self) -> None:
        """The page is replaced after the end, so nothing is restored."""
        self._is_open = False

    def feed(self, text: str) -> None:
        """Process keys, pasted text and mouse reports."""
        if not self._is_open:
            return
        try:
            messages = [*self._parser.feed(text), *self._parser.tick()]
        except ParseError:
            self._parser = XTermParser(self._debug)
            return
        for message in messages:
            self.process_message(message)
        self._loop.call_later(1.1 * constants.ESCAPE_DELAY, self._tick)  # a lone Esc

    def _tick(self) -> None:
        if self._is_open:
            for message in self._parser.tick():
                self.process_message(message)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal this size, in cells."""
        self._size = width, height
        size = Size(width, height)
        self._app.post_message(events.Resize(size, size))

    def focus(self, has_focus: bool) -> None:
        """The page got or lost the focus. Posted after the blur event with which the app starts."""
        event = events.AppFocus() if has_focus else events.AppBlur()
        self._app.call_later(self._app.post_message, event)
