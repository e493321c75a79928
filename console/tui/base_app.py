"""What every app of gconsole has: its themes, the clipboard, and an orderly way out."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import App
from textual.notifications import Notify, SeverityLevel

from ..text import logs
from ..text.cells import clean
from .controllers.clipboard import ClipboardController, ClipboardTarget
from .controllers.shutdown import ShutdownController
from .controllers.theming import ThemeController
from .controllers.typed_input import TypedInput
from .notifications import TimedNotification
from .screen_sink import install
from .terminal_driver import terminal_driver_class
from .theme.catalog import ThemeCatalog
from .theme.themes import as_textual, theme_files
from .widgets.painting import COMPONENT_STYLES

#: Characters. Longer toasts are cut; the full text is in Events or in a log.
LONGEST_TOAST = 400


class BaseApp(App[None], inherit_bindings=False):
    """Owns the controllers for themes, clipboard and shutdown.

    A controller's `action_` methods are bound as `namespace.action`; the namespace is its attribute here.
    Component classes are the styles that `Painting` widgets are drawn in.
    """

    COMPONENT_CLASSES = COMPONENT_STYLES  # type: ignore[assignment]

    def __init__(
        self,
        themes: ThemeCatalog | None = None,
        *,
        on_stop: Callable[[], Awaitable[None]] | None = None,
        clipboard: ClipboardTarget = "osc52",
        picture_title: str = "gconsole",
        remembers_theme: bool = True,
    ) -> None:
        install()
        # Textual turns colours grey for NO_COLOR; only with the terminal's own colours does it leave them out.
        super().__init__(terminal_driver_class(), ansi_color=True if "NO_COLOR" in os.environ else None)
        self.themes = ThemeController(self, themes or ThemeCatalog(), remembers=remembers_theme)
        self.clip = ClipboardController(self, clipboard, picture_title)
        self.shutdown = ShutdownController(self, on_stop)
        self.typed = TypedInput(self, super().on_event)
        self._action_targets |= {"themes", "clip", "shutdown"}

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The default theme's colours for our variables, which Textual's own themes do not define."""
        return as_textual(theme_files()[0]).variables

    async def on_event(self, event: events.Event) -> None:
        """Handle an event; keys and pastes take effect one after another."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.typed.put(event)
        else:
            await super().on_event(event)

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information", timeout: float | None = None,
        markup: bool = False,
    ) -> None:  # fmt: skip
        """Show a toast of at most `LONGEST_TOAST` characters, sanitised: the text may come from a node."""
        text = "\n".join(clean(line) for line in message[:LONGEST_TOAST].splitlines())
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(TimedNotification(text, clean(title), severity, seconds, markup=markup)))

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what is selected with the mouse or in an input line; only failures are reported."""
        self.clip.copy_selection(text)

    def watch_app_focus(self, has_focus: bool) -> None:
        """Focus the input of a dialog that was opened while the terminal or the page had no focus.

        Textual focuses the first input of a screen when it is opened, but not while the terminal has no focus.
        """
        if has_focus and len(self.screen_stack) > 1 and self.screen.focused is None:
            self.screen.focus_next()

    def repaint(self, _: object = None) -> None:
        """Paint everything: after `fg` the terminal's screen is empty although no widget changed."""
        self.screen.refresh(layout=True)

    async def action_run_bound(self, id: str) -> None:
        """Run the action that is bound under this id: a click on a key hint."""
        for item in self.screen.active_bindings.values():
            if item.binding.id == id and item.enabled:
                await self.run_action(item.binding.action, item.node)
                return

    async def run_async(self, *args: Any, **options: Any) -> None:
        """Run until the user quits, then shut down with the terminal restored. Raises the error that ended the app."""
        logs.detach_stderr()
        await self.shutdown.run(super().run_async(*args, **options))
        return self.return_value

    def _fatal_error(self) -> None:
        """Print no traceback over the terminal: `run_async` raises the error, and the CLI prints it in one line."""
        self._close_messages_no_wait()
