"""Prompts of logins for passwords and one-time codes, one after the other and never over an open dialog or input."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from textual.app import App
from textual.widgets import Input

from .dialogs.prompts import SecretPrompt


@dataclass(eq=False)
class _Request:
    login: str
    prompt: str
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LoginPrompts:
    """Queue of prompts: `read_secret` waits for the user, `open_next` is called periodically."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._queue: deque[_Request] = deque()
        self._open: tuple[_Request, SecretPrompt] | None = None
        self._is_notified = False

    async def read_secret(self, login: str, prompt: str) -> str | None:
        """What the user types; None if they skip it. A cancelled request closes its dialog."""
        request = _Request(login, prompt)
        self._queue.append(request)
        self.open_next()
        try:
            return await request.answer
        finally:
            self._withdraw(request)

    def open_next(self) -> None:
        """Open the next prompt unless a dialog or an input has the keyboard."""
        if self._open is not None or not self._queue:
            return
        if len(self._app.screen_stack) != 1 or isinstance(self._app.focused, Input):
            if not self._is_notified:
                self._is_notified = True
                text = "a login is waiting for input; close this dialog or filter to answer"
                self._app.notify(text, severity="warning", markup=False)
            return
        self._is_notified = False
        request = self._queue.popleft()
        dialog = SecretPrompt(request.login, request.prompt, len(self._queue))
        self._open = request, dialog

        def answered(answer: str | None) -> None:
            self._open = None
            if not request.answer.done():
                request.answer.set_result(answer)
            self._app.call_later(self.open_next)

        self._app.push_screen(dialog, answered)

    def _withdraw(self, request: _Request) -> None:
        if request in self._queue:
            self._queue.remove(request)
        elif self._open is not None and self._open[0] is request:
            dialog = self._open[1]
            self._open = None
            if dialog in self._app.screen_stack:
                dialog.dismiss(None)
                self._app.notify("login timed out while its prompt was open", severity="warning", markup=False)
