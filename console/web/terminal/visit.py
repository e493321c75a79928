"""One visitor of `gconsole serve`: an app of its own in this process, drawn for one websocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from rich.color import ColorSystem
from textual.app import App

from .driver import BrowserDriver, OutputQueue, SlowReaderError

#: Seconds that an app has to end after it was requested, then it is cancelled.
LEAVE_S: Final = 3.0
#: Seconds. A browser that accepts no output for so long is disconnected.
STALL_S: Final = 30.0
#: Seconds. The longest wait for the effect of input before more is read from the browser.
INPUT_S: Final = 1.0
#: Allowed terminal sizes in cells, both ends included; other sizes are clamped.
WIDTHS, HEIGHTS = (20, 1000), (5, 500)

_log = logging.getLogger(__name__)


class Visit:
    """Runs `app` for one browser. `write` sends output and returns once the browser's connection accepted it.

    `closed` is awaited once the app has ended. `leaving` is set when the visit starts to end, `gone` when it has ended;
    `reason` is why, unless the visitor quit.
    """

    def __init__(
        self, app: App[Any], write: Callable[[bytes], Awaitable[None]],
        closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        self._app, self._write, self._closed = app, write, closed
        self._output = OutputQueue()
        self.leaving, self.gone = asyncio.Event(), asyncio.Event()
        self.reason = ""

    @property
    def _driver(self) -> BrowserDriver | None:
        driver = self._app._driver
        return driver if isinstance(driver, BrowserDriver) else None

    async def run(self, width: int, height: int) -> None:
        """Run the app until it ends or its browser stalls. An error of the app ends this visit only."""
        app = self._app
        app.driver_class = partial(BrowserDriver, output=self._output)  # type: ignore[assignment]
        app.console._color_system = ColorSystem.TRUECOLOR
        size = clamp(width, WIDTHS), clamp(height, HEIGHTS)
        # The run of Textual's own class: ours handles signals and ends the fleet, which are the server's here.
        running = asyncio.create_task(App.run_async(app, size=size), name="screen of a visitor")
        sending = asyncio.create_task(self._send_output(), name="output of a visitor")
        try:
            await asyncio.wait({running, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                self.reason = "The browser did not read what was drawn for it."
        finally:
            self.leaving.set()
            await _end(app, running)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, SlowReaderError, TimeoutError):
                await sending
            self._explain(running)
            if self._closed is not None:
                await self._closed()
            self.gone.set()

    def _explain(self, running: asyncio.Task[Any]) -> None:
        error = app_error(self._app, running)
        if error is not None:
            _log.error("the screen of a visitor failed", exc_info=error)
            self.reason = f"The screen failed: {type(error).__name__}: {error}"

    async def _send_output(self) -> None:
        """Send output. Raises SlowReaderError or TimeoutError if the browser reads too slowly."""
        while True:
            data = await self._output.receive()
            async with asyncio.timeout(STALL_S):
                await self._write(data)

    def stop(self) -> None:
        """Request the end: `run` returns soon."""
        self.leaving.set()
        self._app.exit()

    async def send_input(self, text: str) -> None:
        """Deliver keys, pasted text or mouse reports, and wait for their effect: a flood delays its visitor alone."""
        if self._driver is None:
            return
        self._driver.feed(text)
        await asyncio.sleep(0)
        end = time.monotonic() + INPUT_S
        queue: asyncio.Queue[Any] = self._app._message_queue
        while queue.qsize() and time.monotonic() < end and not self.leaving.is_set():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.005)

    def resize(self, width: int, height: int) -> None:
        """Resize the terminal, clamped to the allowed sizes."""
        if self._driver is not None:
            self._driver.resize(clamp(width, WIDTHS), clamp(height, HEIGHTS))

    def focus(self, has_focus: bool) -> None:
        """The page got or lost the focus."""
        if self._driver is not None:
            self._driver.focus(has_focus)


def app_error(app: App[Any], running: asyncio.Task[Any]) -> BaseException | None:
    """The error that ended an app, or None."""
    if not running.cancelled() and running.exception() is not None:
        return running.exception()
    return app._exception


async def _end(app: App[Any], running: asyncio.Task[Any]) -> None:
    if not running.done():
        app.exit()
        await asyncio.wait({running}, timeout=LEAVE_S)
    if not running.done():
        running.cancel()
        await asyncio.wait({running})


def clamp(value: int, bounds: tuple[int, int]) -> int:
    """The value, or the bound that it exceeds."""
    return max(bounds[0], min(value, bounds[1]))
