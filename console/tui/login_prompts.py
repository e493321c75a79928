"""Questions of logins, asked one after the other, never over a dialog that is open or into a line that is typed."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from textual.app import App
from textual.widgets import Input

from .dialogs.prompts import SecretPrompt


@dataclass(eq=False)
class _Question:
    who: str
    prompt: str
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Questions:
    """`ask` waits for the answer of a person; `look` is called once in a while and opens what can be opened."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._waiting: deque[_Question] = deque()
        self._open: tuple[_Question, SecretPrompt] | None = None
        self._is_told = False

    async def ask(self, who: str, prompt: str) -> str | None:
        """The answer; None where the person leaves it out. Cancelled, the question is gone from the screen, too."""
        question = _Question(who, prompt)
        self._waiting.append(question)
        self.look()
        try:
            return await question.answer
        finally:
            self._forget(question)

    def look(self) -> None:
        """Open the next question, where nothing else has the keys."""
        if self._open is not None or not self._waiting:
            return
        if len(self._app.screen_stack) != 1 or isinstance(self._app.focused, Input):
            if not self._is_told:
                self._is_told = True
                self._app.notify(
                    "a login asks for something; close what is open to answer", severity="warning", markup=False
                )
            return
        self._is_told = False
        question = self._waiting.popleft()
        dialog = SecretPrompt(question.who, question.prompt, len(self._waiting))
        self._open = question, dialog

        def take(answer: str | None) -> None:
            self._open = None
            if not question.answer.done():
                question.answer.set_result(answer)
            self._app.call_later(self.look)

        self._app.push_screen(dialog, take)

    def _forget(self, question: _Question) -> None:
        if question in self._waiting:
            self._waiting.remove(question)
        elif self._open is not None and self._open[0] is question:
            dialog = self._open[1]
            self._open = None
            if dialog in self._app.screen_stack:
                dialog.dismiss(None)
                self._app.notify("the login did not wait any longer", severity="warning", markup=False)
