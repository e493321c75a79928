"""Textual driver of a console in a browser; `gconsole serve` names it in TEXTUAL_DRIVER."""

from __future__ import annotations

import asyncio
import os

from textual import events, messages
from textual.drivers.web_driver import WebDriver


class BrowserDriver(WebDriver):
    """Reads packets from stdin and writes packets to stdout. The app exits when stdin ends."""

    def start_application_mode(self) -> None:
        """Start Textual's web driver with complete writes."""
        self._loop = asyncio.get_running_loop()
        self._write = self._write_all  # type: ignore[assignment]
        super().start_application_mode()

    def _write_all(self, data: bytes) -> int:
        """Write everything; a signal may interrupt a write."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fileno, rest) :]
        except BrokenPipeError:
            pass  # stdin ends as well, which ends the app
        return len(data)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Post the focus event after the blur event with which the driver starts, even if it arrives earlier."""
        if packet_type == "focus":
            self._app.call_later(self._app.post_message, events.AppFocus())
        else:
            super().on_meta(packet_type, payload)

    def run_input_thread(self) -> None:
        """Read packets until stdin ends. If the app did not close it, the server was killed, and the app exits."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            asyncio.run_coroutine_threadsafe(self._app._post_message(messages.ExitApp()), self._loop)
