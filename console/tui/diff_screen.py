"""Two sessions side by side on the screen: read in a thread, then as many lines as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from ..present.spans import Span, as_text, plain
from ..session.format.layout import Session, SessionError
from ..session.manage.diff import Comparison, compare_sessions
from ..session.manage.diff_lines import Order, difference_lines, headline, names
from ..text import format
from .base_app import BaseApp
from .dialogs.dialog import KeysDialog
from .keymap.actions import bindings, in_scope
from .widgets.bar import Bar
from .widgets.key_hints import hints
from .widgets.report import LineReport

#: How often it is said how far the reading is, s.
_TELL_S = 0.25


class ComparisonProgress:
    """How far it is, told from the thread that reads, and whether anybody still wants it."""

    def __init__(self) -> None:
        self.records = 0
        self.is_given_up = False

    def on_record(self) -> None:
        """One more. Raises GivenUp where nobody wants it any more."""
        self.records += 1
        if self.is_given_up:
            raise ComparisonCancelled


class ComparisonCancelled(Exception):
    """The person left before it was read."""


class DiffScreen(ModalScreen[Comparison | None]):
    """`compare` reads both sessions, in a thread; what it found is given back when the person leaves."""

    DEFAULT_CSS = "DiffScreen { background: $background; align: left top; }"
    BINDINGS: ClassVar[list[BindingType]] = bindings(in_scope("diff"))

    def __init__(self, a: str, b: str, compare: Callable[[ComparisonProgress], Comparison]) -> None:
        super().__init__()
        self._names, self._compare = names(a, b), compare
        self._reading = ComparisonProgress()
        self.error = ""  # why nothing was compared
        self._found: Comparison | None = None
        self._order: Order = "name"
        self._head, self._body, self._foot = Bar(id="header"), LineReport(id="difference"), Bar(id="footer")

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._body
        yield self._foot

    def on_mount(self) -> None:
        self._body.focus()
        self.run_worker(self._read(), name="compare sessions")
        self._telling = self.set_interval(_TELL_S, self._draw, name="how far it is")
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    async def _read(self) -> None:
        try:
            self._found = await asyncio.to_thread(self._compare, self._reading)
        except ComparisonCancelled:
            return
        except (OSError, SessionError) as error:
            self.error = str(error)
            self.dismiss(None)
            return
        self._telling.stop()
        self._draw()

    def _draw(self) -> None:
        if not self.is_attached:
            return
        found, width = self._found, self._body.scrollable_content_region.width
        if found is None:
            self._head.show(self._names)
            self._body.show([plain(""), plain(f"  {format.count(self._reading.records)} records read …", "muted")])
        else:
            self._head.show(headline(found))
            self._body.show(difference_lines(found, width, self._order))
        self._foot.show(hints(self.active_bindings, in_scope("diff"), self.size.width), (Span(""),))

    # -- what its keys do --------------------------------------------------------------------------------------------

    def action_order(self) -> None:
        """Figures by name, or by how much they changed."""
        self._order = "change" if self._order == "name" else "name"
        self._draw()

    def action_copy_text(self) -> None:
        """All of it, as wide as it needs to be."""
        if self._found is not None and isinstance(self.app, BaseApp):
            self.app.copy(as_text(difference_lines(self._found, 160, self._order)) + "\n", "the comparison")

    def action_keys(self) -> None:
        """List the keys."""
        lines = [action for action in in_scope("lines") if action.call in ("down", "up", "top", "bottom")]
        self.app.push_screen(KeysDialog([("Two sessions", [*in_scope("diff"), *lines])]))

    def action_close(self) -> None:
        """Leave, whatever is still being read."""
        self._reading.is_given_up = True
        self.dismiss(self._found)


def diff_of(a: Session, b: Session) -> DiffScreen:
    """The screen for two recorded sessions."""
    return DiffScreen(a.name, b.name, lambda reading: compare_sessions(a, b, reading.on_record))
