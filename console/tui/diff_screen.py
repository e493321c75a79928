"""Comparison of two sessions on the screen: as a dialog of a replay, and as the app of `gconsole diff`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from ..analysis.comparison import Comparison
from ..present.comparison import Order, difference_lines, headline, names
from ..present.spans import Span, as_text, plain
from ..session.format.layout import Session, SessionError
from ..session.query.comparison import compare_sessions
from ..session.query.limits import QueryCancelled
from ..session.query.worker import QueryWorkerClient
from .base_app import BaseApp
from .dialogs.dialog import KeysDialog
from .keymap.actions import bindings, in_scope
from .theme.catalog import ThemeCatalog
from .widgets.bars import Bar, hints
from .widgets.line_view import LineReport


class DiffScreen(ModalScreen[Comparison | None]):
    """Runs `compare` in a thread and shows its result, which is the screen's result when it is closed."""

    DEFAULT_CSS = "DiffScreen { background: $background; align: left top; }"
    BINDINGS: ClassVar[list[BindingType]] = bindings(in_scope("diff"))

    def __init__(self, a: str, b: str, compare: Callable[[QueryWorkerClient], Comparison]) -> None:
        super().__init__()
        self._names, self._compare = names(a, b), compare
        self._queries = QueryWorkerClient()
        self.error = ""  # why the comparison failed
        self._comparison: Comparison | None = None
        self._order: Order = "name"
        self._head, self._body, self._foot = Bar(id="header"), LineReport(id="difference"), Bar(id="footer")

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._body
        yield self._foot

    def on_mount(self) -> None:
        self._body.focus()
        self.run_worker(self._read(), name="compare sessions")
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    async def _read(self) -> None:
        try:
            self._comparison = await asyncio.to_thread(self._compare, self._queries)
        except QueryCancelled:
            return
        except (OSError, SessionError) as error:
            self.error = str(error)
            self.dismiss(None)
            return
        finally:
            self._queries.close()
        self._draw()

    def _draw(self) -> None:
        if not self.is_attached:
            return
        comparison, width = self._comparison, self._body.scrollable_content_region.width
        if comparison is None:
            self._head.show(self._names)
            self._body.show([plain(""), plain("  reading both sessions …", "muted")])
        else:
            self._head.show(headline(comparison))
            self._body.show(difference_lines(comparison, width, self._order))
        self._foot.show(hints(self.active_bindings, in_scope("diff"), self.size.width), (Span(""),))

    def action_order(self) -> None:
        """Sort metrics by name, or by change."""
        self._order = "change" if self._order == "name" else "name"
        self._draw()

    def action_copy_text(self) -> None:
        """Copy the comparison, 160 cells wide."""
        if self._comparison is not None and isinstance(self.app, BaseApp):
            self.app.clip.copy(as_text(difference_lines(self._comparison, 160, self._order)) + "\n", "the comparison")

    def action_keys(self) -> None:
        """List the keys."""
        lines = [action for action in in_scope("lines") if action.call in ("down", "up", "top", "bottom")]
        self.app.push_screen(KeysDialog([("Two sessions", [*in_scope("diff"), *lines])]))

    def action_close(self) -> None:
        """Close the screen, and cancel reading."""
        self._queries.cancel()
        self.dismiss(self._comparison)


def diff_of(a: Session, b: Session) -> DiffScreen:
    """The screen for two recorded sessions."""
    return DiffScreen(a.name, b.name, lambda queries: compare_sessions(a.path, b.path, queries))


class DiffApp(BaseApp, inherit_bindings=False):
    """Shows `screen`; `comparison` is its result, None if the user quit before it was read."""

    CSS_PATH = "console.tcss"
    TITLE = "gconsole diff"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings(action for action in in_scope("app") if action.priority)

    def __init__(self, screen: DiffScreen, themes: ThemeCatalog | None = None) -> None:
        super().__init__(themes)
        self._diff = screen
        self.comparison: Comparison | None = None

    def on_mount(self) -> None:
        self.themes.follow()
        self.app_resume_signal.subscribe(self, self.repaint)
        self.push_screen(self._diff, self._quit)

    def _quit(self, comparison: Comparison | None) -> None:
        self.comparison = comparison
        self.exit()

    @property
    def error(self) -> str:
        """Why nothing was compared, else ""."""
        return self._diff.error
