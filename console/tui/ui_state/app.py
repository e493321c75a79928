"""An app that is a person's own: their keys, their themes, and everything as they arranged it the last time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ...records import Log
from ..controllers.shutdown import EndingApp
from ..dialogs.prompts import Confirm
from ..keymap.actions import no_key
from ..keymap.file import OwnKeys
from ..models.list_kind import DEFAULT_ARRANGEMENT
from ..theme.catalog import ThemeShelf
from ..theme.themes import DEFAULT
from ..views.base import View
from .autosave import Keeping
from .store import Memory

#: How often it is looked whether something was arranged, in seconds.
KEEP_S = 1.0


class PersonalApp(EndingApp, inherit_bindings=False):
    """`say` takes what belongs into Events; the rest is the person's. `view` is the one on the screen."""

    def __init__(
        self, themes: ThemeShelf | None, keys: OwnKeys, memory: Memory, on_stop: Callable[[], Awaitable[None]] | None,
        say: Callable[[Log], None] | None,
    ) -> None:  # fmt: skip
        super().__init__(themes, on_stop)
        self._say, self._own_keys = say, keys
        self.keeping = Keeping(self, memory)
        self.own_theme = ""  # the theme that was chosen for this cluster
        if self.keeping.remembered.theme in self.theme_names:
            self.own_theme = self.keeping.remembered.theme
            self.draw_in(self.own_theme)

    @property
    def view(self) -> View:
        """The view on the screen."""
        raise NotImplementedError

    @property
    def opened_views(self) -> Mapping[str, View]:
        """The views that exist, by name."""
        raise NotImplementedError

    def follow_person(self) -> None:
        """Take their keys, tell what is wrong with their files, and remember what they arrange. Once mounted."""
        self.set_keymap({id: keys or no_key(id) for id, keys in self._own_keys.keymap.items()})
        self._tell_of_keys()
        self.keeping.tell()
        self.set_interval(KEEP_S, self.keeping.look, name="what is arranged")

    def say(self, log: Log) -> None:
        """Put a line into Events."""
        if self._say is not None:
            self._say(log)

    def _tell_of_keys(self) -> None:
        """What is wrong with keys.toml: every line in Events, one toast for all."""
        complaints = self._own_keys.complaints
        for text in complaints:
            self.say(Log(source="console", severity="warning", text=text, try_="gconsole config keys lists all keys"))
        if complaints:
            lines = "1 line is" if len(complaints) == 1 else f"{len(complaints)} lines are"
            text = f"{lines} not used; Events says why"
            self.notify(text, title="keys.toml", severity="warning", timeout=10, markup=False)

    def use_theme(self, name: str) -> None:
        """Draw everything in that theme, now and the next time."""
        super().use_theme(name)
        self.own_theme = name

    def before_stop(self) -> None:
        if self.opened_views:
            self.keeping.end()

    def action_forget(self) -> None:
        """Arrange everything as at first, after a question."""
        words = "Filters, orders, groups, columns and the theme that you chose for this cluster are forgotten."
        self.push_screen(Confirm("Reset what is remembered?", words, "resets it"), self._forget)

    def _forget(self, yes: bool | None) -> None:
        if not yes:
            return
        self.keeping.forget()
        self.use_theme(DEFAULT)
        self.own_theme = ""
        for view in self.opened_views.values():
            view.restore(DEFAULT_ARRANGEMENT)
        self.notify("everything is arranged as at first", timeout=3, markup=False)
