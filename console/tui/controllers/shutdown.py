"""An app that can be left in every way people leave: `q`, Ctrl-C twice, a signal, an error, Ctrl-Z and back."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from textual.actions import SkipAction
from textual.app import AutopilotCallbackType
from textual.widgets import Input

from ..theme.catalog import ThemeShelf
from .clipboard import TakingApp
from .quit import Leaving, stop_in_time

#: A second Ctrl-C within this many seconds leaves.
_TWICE_S = 2.0


class EndingApp(TakingApp, inherit_bindings=False):
    """`on_stop` is called with the terminal restored, and has 2.5 seconds."""

    def __init__(self, themes: ThemeShelf | None, on_stop: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(themes)
        self._on_stop = on_stop
        self._interrupted_at = 0.0
        self._leaving = Leaving(lambda code: self.exit(return_code=code))

    def action_interrupt(self) -> None:
        """Ctrl-C: copy what is selected; where nothing is, the second one leaves."""
        focused = self.focused
        if self.screen.get_selected_text() or (isinstance(focused, Input) and focused.selected_text):
            raise SkipAction
        if time.monotonic() - self._interrupted_at <= _TWICE_S:
            self.exit()
            return
        self._interrupted_at = time.monotonic()
        self.notify("Ctrl-C again leaves", timeout=_TWICE_S)

    def action_suspend_process(self) -> None:
        """Put the console into the background; `fg` brings it back. Where no shell could, say so instead."""
        if os.getsid(0) == os.getpid():
            self.notify("no shell started this console, so nothing could bring it back", severity="warning")
        else:
            super().action_suspend_process()

    def repaint(self, _: object = None) -> None:
        """Paint everything: after `fg` the terminal's screen is empty, and nothing need have changed on ours."""
        self.screen.refresh(layout=True)

    async def run_async(
        self, *, headless: bool = False, inline: bool = False, inline_no_clear: bool = False, mouse: bool = True,
        size: tuple[int, int] | None = None, auto_pilot: AutopilotCallbackType | None = None,
    ) -> None:  # fmt: skip
        """Run until the person leaves; then, with the terminal restored, `on_stop`. Raises what ended the app."""
        self._leaving.watch()
        try:
            await super().run_async(
                headless=headless, inline=inline, inline_no_clear=inline_no_clear, mouse=mouse, size=size,
                auto_pilot=auto_pilot,
            )  # fmt: skip
        finally:
            self.before_stop()
            if self._on_stop is not None:
                await stop_in_time(self._on_stop)
            self._leaving.done()
        if self._exception is not None:
            raise self._exception
        return self.return_value

    def before_stop(self) -> None:
        """The last thing before `on_stop`, with the terminal restored; must not take long."""

    def _fatal_error(self) -> None:
        """No traceback over the terminal: `run_async` raises the error, and the command line tells it in one line."""
        self._close_messages_no_wait()
