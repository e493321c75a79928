"""How an app draws in a browser: Textual's own driver for it, which also ends when nobody is there to see.

`gconsole serve` names it in TEXTUAL_DRIVER.
"""

from __future__ import annotations

import asyncio
import os

from textual import events, messages
from textual.drivers.web_driver import WebDriver


class BrowserDriver(WebDriver):
    """Reads packets from stdin, writes packets to stdout."""

    def start_application_mode(self) -> None:
        """Start Textual's web driver with complete writes."""
        self._loop = asyncio.get_running_loop()
        self._write = self._write_all  # type: ignore[assignment]
        super().start_application_mode()

    def _write_all(self, data: bytes) -> int:
        """Write everything. A signal may cut a write short; a server that is gone reads nothing."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fileno, rest) :]
        except BrokenPipeError:
            pass  # the other end of stdin is closed as well, and says so
        return len(data)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """The driver begins by telling the app that nobody looks. A browser that says otherwise may be quicker."""
        if packet_type == "focus":
            self._app.call_later(self._app.post_message, events.AppFocus())
        else:
            super().on_meta(packet_type, payload)

    def run_input_thread(self) -> None:
        """Read until stdin ends; that is not the app's doing when the server was killed, so the app leaves, too."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            asyncio.run_coroutine_threadsafe(self._app._post_message(messages.ExitApp()), self._loop)
