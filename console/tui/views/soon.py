"""The place of a view that is not built yet: one line that says what will be there."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from .base import View


class Soon(View):
    """Shows its one line."""

    def __init__(self, title: str, promise: str, *, id: str) -> None:
        super().__init__(id=id)
        self._title, self._promise = title, promise

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble((self._title, "bold $accent"), (f"  {self._promise}", "$muted")))
