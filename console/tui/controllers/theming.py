"""An app that is drawn in our themes: it follows the person's own folder, and remembers what they chose."""

from __future__ import annotations

import asyncio
import os

from textual.app import App
from textual.notifications import SeverityLevel

from ...text.cells import clean
from ..theme.catalog import News, ThemeShelf
from ..theme.themes import DEFAULT, as_textual, textual_name, theme_files
from ..widgets.painting import LOOKS

#: The folder of themes is looked at this often, in seconds: soon enough for whoever saves and looks up.
_LOOK_EVERY_S = 1.0
#: Characters of a toast.
LONGEST_TOAST = 400


class ThemedApp(App[None], inherit_bindings=False):
    """Its component classes are what `Painting` widgets are drawn in.

    Without a shelf there are only the themes of gconsole, and nothing is remembered.
    """

    COMPONENT_CLASSES = LOOKS  # type: ignore[assignment]

    def __init__(self, shelf: ThemeShelf | None = None) -> None:
        # Textual turns colours grey for NO_COLOR; only with the terminal's own colours does it leave them out.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._shelf = shelf or ThemeShelf()
        self._looking = False
        self._first_news = self._shelf.look()
        for theme in self._shelf.themes:
            self.register_theme(as_textual(theme))
        self.theme = textual_name(self._shelf.chosen())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our variables with the default theme's colours: a theme of Textual's own knows nothing of them."""
        return as_textual(theme_files()[0]).variables

    def follow_themes(self) -> None:
        """Tell what was wrong with the folder, and draw what is saved there from now on. Once the app is mounted."""
        self._tell(self._first_news)
        if self._shelf.has_folder:
            self.set_interval(_LOOK_EVERY_S, self._look, name="themes")

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self.run_worker(self._look_in_thread(), name="look at the folder of themes")

    async def _look_in_thread(self) -> None:
        try:
            news = await asyncio.to_thread(self._shelf.look)  # the folder may lie on a server that is away
        finally:
            self._looking = False
        if news:
            self._draw_anew(news)
            self._tell(news)

    def _draw_anew(self, news: News) -> None:
        themes = {textual_name(theme.name): theme for theme in self._shelf.themes}
        for name in map(textual_name, news.names):
            if name in themes:
                self.register_theme(as_textual(themes[name]))
        if self.theme in map(textual_name, news.names):
            present = self.theme
            # Textual draws a theme anew when another one takes its place.
            self.theme = next(name for name in themes if name != present)
            self.theme = present if present in themes else textual_name(DEFAULT)
        for name in map(textual_name, news.names):
            if name not in themes:
                self.unregister_theme(name)

    def _tell(self, news: News) -> None:
        for line in news.complaints:
            self.log.warning(line)
            self.notify(line, title="theme", severity="warning", timeout=10, markup=False)

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information", timeout: float | None = None,
        markup: bool = False,
    ) -> None:  # fmt: skip
        """A toast: a few lines of text, whoever wrote it. What is longer stands in Events or in a log."""
        lines = [clean(line) for line in message[:LONGEST_TOAST].splitlines()]
        super().notify("\n".join(lines), title=clean(title), severity=severity, timeout=timeout, markup=markup)

    # -- choosing ----------------------------------------------------------------------------------------------------

    @property
    def theme_names(self) -> list[str]:
        return [theme.name for theme in self._shelf.themes]

    def draw_in(self, name: str) -> None:
        """Draw everything in that theme, and remember nothing."""
        self.theme = textual_name(name)

    def use_theme(self, name: str) -> None:
        """Draw everything in that theme, now and the next time."""
        self.draw_in(name)
        trouble = self._shelf.remember(name)
        if trouble:
            self.notify(trouble, severity="warning", markup=False)

    def action_next_theme(self) -> None:
        """The next theme, the first after the last."""
        names = self.theme_names
        present = [textual_name(name) for name in names]
        self.use_theme(names[(present.index(self.theme) + 1) % len(names)] if self.theme in present else names[0])
