"""Themes: choosing one, and reloading the user's own when a file in their folder changes."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App

from ..theme.catalog import ThemeCatalog, ThemeChanges
from ..theme.themes import DEFAULT, as_textual, textual_name
from . import Controller

#: Seconds between two scans of the themes folder, which wake an idle console: short enough for an author who saves and
#: looks up.
RELOAD_EVERY_S = 2.0


class ThemeController(Controller):
    """Registers the themes of `catalog` with the app. With `remembers` false a choice is not stored."""

    def __init__(self, app: App[Any], catalog: ThemeCatalog, *, remembers: bool = True) -> None:
        self._app, self._catalog, self._remembers = app, catalog, remembers
        self.chosen = ""  # the theme that was chosen in this session or restored from the UI state
        self._is_scanning = False
        self._first_changes = catalog.scan()
        for theme in catalog.themes:
            app.register_theme(as_textual(theme))
        app.theme = textual_name(catalog.chosen())

    @property
    def names(self) -> list[str]:
        """Names of all themes, in the order in which they are offered."""
        return [theme.name for theme in self._catalog.themes]

    def follow(self) -> None:
        """Report problems with the folder, and reload what is saved there from now on. Call once mounted."""
        self._report(self._first_changes)
        if self._catalog.has_folder:
            self._app.set_interval(RELOAD_EVERY_S, self._scan, name="themes")

    def show(self, name: str) -> None:
        """Draw everything in that theme, without storing the choice."""
        self._app.theme = textual_name(name)

    def use(self, name: str) -> None:
        """Draw everything in that theme, now and in later sessions."""
        self.show(name)
        if self._remembers:
            self.chosen = name
            problem = self._catalog.remember(name)
            if problem:
                self._app.notify(problem, severity="warning", markup=False)

    def action_next(self) -> None:
        """Use the next theme, the first after the last."""
        names = self.names
        present = [textual_name(name) for name in names]
        self.use(names[(present.index(self._app.theme) + 1) % len(names)] if self._app.theme in present else names[0])

    def _scan(self) -> None:
        if not self._is_scanning:
            self._is_scanning = True
            self._app.run_worker(self._scan_in_thread(), name="scan the themes folder")

    async def _scan_in_thread(self) -> None:
        try:
            changes = await asyncio.to_thread(self._catalog.scan)  # the folder may be on an unreachable file server
        finally:
            self._is_scanning = False
        if changes:
            self._apply(changes)
            self._report(changes)

    def _apply(self, changes: ThemeChanges) -> None:
        app, themes = self._app, {textual_name(theme.name): theme for theme in self._catalog.themes}
        for name in map(textual_name, changes.names):
            if name in themes:
                app.register_theme(as_textual(themes[name]))
        if app.theme in map(textual_name, changes.names):
            present = app.theme
            # Textual redraws a theme only when another one takes its place.
            app.theme = next(name for name in themes if name != present)
            app.theme = present if present in themes else textual_name(DEFAULT)
        for name in map(textual_name, changes.names):
            if name not in themes:
                app.unregister_theme(name)

    def _report(self, changes: ThemeChanges) -> None:
        for line in changes.complaints:
            self._app.log.warning(line)
            self._app.notify(line, title="theme", severity="warning", timeout=10, markup=False)
