"""Dialogs that return an answer (a line of text, a secret, a confirmation), and the queue of login prompts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from textual.app import App
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from ...text.cells import clean
from ...text.format import plural
from ..keymap.actions import bindings, in_scope
from .dialog import Dialog

#: Characters of a server's prompt that are shown.
LONGEST_PROMPT = 400


class Prompt(Dialog[str | None]):
    """Reads one line, at first `typed`: Enter, which does what `enter` says, returns it; Escape returns None."""

    BINDINGS = bindings(in_scope("prompt"))

    def __init__(
        self,
        title: str,
        text: str,
        *,
        enter: str,
        escape: str = "cancel",
        secret: bool = False,
        hint: str = "",
        typed: str = "",
    ) -> None:
        super().__init__(title, [("Enter", enter), ("Esc", escape)])
        self._text = text
        self._input = Input(typed, password=secret, placeholder=hint)

    def content(self) -> Iterable[Widget]:
        """The explanation and the input line."""
        yield Static(Content(self._text), classes="prompt-text")
        yield self._input

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_drop(self) -> None:
        self.dismiss(None)


class SecretPrompt(Prompt):
    """Reads a passphrase, a password or a one-time code for `login`, without echo; `waiting` more are queued."""

    def __init__(self, login: str, prompt: str, waiting: int) -> None:
        queued = f"\n{plural(waiting, 'more login prompt')} queued." if waiting else ""
        title, text = f"Login: {clean(login)[:LONGEST_PROMPT]}", clean(prompt)[:LONGEST_PROMPT] + queued
        super().__init__(title, text, enter="log in", escape="skip", secret=True)


class Confirm(Dialog[bool]):
    """Asks for confirmation; `yes` is the verb of what `y` does."""

    BINDINGS = bindings(in_scope("confirm"))

    def __init__(self, title: str, text: str, yes: str) -> None:
        super().__init__(title, [("y", yes), ("Esc", "cancel")])
        self._text = text

    def content(self) -> Iterable[Widget]:
        """The explanation."""
        yield Static(Content(self._text), classes="prompt-text")

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class _Request(msgspec.Struct, eq=False):
    login: str
    prompt: str
    answer: asyncio.Future[str | None] = msgspec.field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class LoginPrompts:
    """Queue of prompts: `read_secret` waits for the user, `open_next` is called periodically.

    `read_secret` may be called by a task that is not the app's, as those of the one fleet of several visitors are.
    """

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._queue: deque[_Request] = deque()
        self._open: tuple[_Request, SecretPrompt] | None = None
        self._is_notified = False

    async def read_secret(self, login: str, prompt: str) -> str | None:
        """What the user types; None if they skip it. A cancelled request closes its dialog."""
        request = _Request(login, prompt)
        self._queue.append(request)
        self._app.call_later(self.open_next)
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
            self._app.call_later(self._close, dialog)

    def _close(self, dialog: SecretPrompt) -> None:
        if dialog in self._app.screen_stack:
            dialog.dismiss(None)
            self._app.notify("login timed out while its prompt was open", severity="warning", markup=False)
