"""Dialogs that return an answer: a line of text, a secret, a confirmation."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from ...text.cells import clean
from ..keymap.actions import bindings, in_scope
from .dialog import Dialog

#: Characters of a server's prompt that are shown.
LONGEST_PROMPT = 400


class Prompt(Dialog[str | None]):
    """Reads one line: Enter, which does what `enter` says, returns it; Escape returns None."""

    BINDINGS = bindings(in_scope("prompt"))

    def __init__(
        self, title: str, text: str, *, enter: str, escape: str = "cancel", secret: bool = False, hint: str = ""
    ) -> None:
        super().__init__(title, [("Enter", enter), ("Esc", escape)])
        self._text = text
        self._input = Input(password=secret, placeholder=hint)

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
        queued = f"\n{waiting} more login prompt{'s' * (waiting > 1)} queued." if waiting else ""
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
