"""Keeps what a person arranges: looks once in a while, and writes where something is not as it was written last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...records import Log
from ..models.list_kind import DEFAULT_ARRANGEMENT, Arrangement
from .store import Memory, Remembered

if TYPE_CHECKING:
    from .app import PersonalApp


class Keeping:
    """`look` is called once in a while, `end` at the very end."""

    def __init__(self, app: PersonalApp, memory: Memory) -> None:
        self._app, self._memory = app, memory
        self.remembered, self._trouble = memory.read()
        self._written = self.remembered
        self._first = ""  # the view that a console begins with
        self._writing = False
        self._is_told = False  # that it cannot be written

    def tell(self) -> None:
        """What was wrong with the file, as an event. Once the app is mounted."""
        if self._trouble:
            self._say(f"what was arranged the last time is lost: {self._trouble}")

    def first_view(self, names: Sequence[str]) -> str:
        """The view to begin with, of these; the first where none is remembered."""
        self._first = names[0]
        return self.remembered.view if self.remembered.view in names else names[0]

    def _now(self) -> Remembered:
        """What is arranged now; of a view that was not opened yet, what was remembered."""
        views: dict[str, Arrangement] = dict(self.remembered.views)
        views |= {name: view.arrangement for name, view in self._app.opened_views.items()}
        view = self._app.view.id or ""
        return Remembered(
            view if view != self._first else "", self._app.own_theme,
            {name: arrangement for name, arrangement in views.items() if arrangement != DEFAULT_ARRANGEMENT},
        )  # fmt: skip

    async def look(self) -> None:
        """Write what changed since the last time, in a thread: the state folder may lie on a server that is away."""
        now = self._now()
        if not self._memory.is_kept or self._writing or now == self._written:
            return
        self._writing = True
        try:
            self._took(now, await asyncio.to_thread(self._memory.write, now))
        finally:
            self._writing = False

    def end(self) -> None:
        """Write what the last look did not see."""
        now = self._now()
        if self._memory.is_kept and now != self._written:
            self._memory.write(now)

    def _took(self, now: Remembered, trouble: str) -> None:
        self._written = now
        if trouble and not self._is_told:
            self._is_told = True
            self._say(f"what you arrange is not remembered: {trouble}")

    def forget(self) -> None:
        """Everything as at first, now and the next time."""
        trouble = self._memory.forget()
        self.remembered = self._written = Remembered()
        if trouble:
            self._say(f"what was arranged is still remembered: {trouble}")

    def _say(self, text: str) -> None:
        self._app.say(Log(source="console", severity="warning", text=text))
