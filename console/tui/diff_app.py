"""`gconsole diff` on a terminal: an app with nothing but the comparison."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ..session.manage.diff import Comparison
from .base_app import BaseApp
from .diff_screen import DiffScreen
from .keymap.actions import bindings, in_scope
from .theme.catalog import ThemeCatalog


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
