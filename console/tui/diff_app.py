"""`gconsole diff` on a terminal: nothing but the comparison."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ..session.manage.diff import Comparison
from .controllers.shutdown import EndingApp
from .diff_screen import DiffScreen
from .keymap.actions import bindings, in_scope
from .theme.catalog import ThemeShelf


class DiffApp(EndingApp, inherit_bindings=False):
    """Shows `screen`; `found` is what it found, None where the person left before."""

    CSS_PATH = "console.tcss"
    TITLE = "gconsole diff"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings(action for action in in_scope("app") if action.priority)

    def __init__(self, screen: DiffScreen, themes: ThemeShelf | None = None) -> None:
        super().__init__(themes, None)
        self._screen = screen
        self.found: Comparison | None = None

    def on_mount(self) -> None:
        self.follow_themes()
        self.app_resume_signal.subscribe(self, self.repaint)
        self.push_screen(self._screen, self._left)

    def _left(self, found: Comparison | None) -> None:
        self.found = found
        self.exit()

    @property
    def trouble(self) -> str:
        """Why nothing was compared."""
        return self._screen.trouble
