"""What the keys do here, told in the footer, in `?` and in the palette: from the one table and a person's own keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from textual.dom import DOMNode
from textual.widgets import Input, TextArea

from ...present.spans import Span
from ...present.status import GLYPHS
from ..dialogs.dialog import KeysDialog
from ..views.registry import VIEWS
from ..widgets.key_hints import hints
from .actions import Action, in_scope
from .file import with_own_keys

if TYPE_CHECKING:
    from ..app import ConsoleApp


def every_action() -> list[Action]:
    """All actions with their ids, those that open a view among them."""
    from .actions import ACTIONS

    return [*ACTIONS, *(row.action for row in VIEWS)]


class Guide:
    """Asks the app what is on the screen; `keymap` has a person's own keys."""

    def __init__(self, app: ConsoleApp, keymap: Mapping[str, str]) -> None:
        self._app, self._keymap = app, keymap

    def own(self, action: Action) -> Action:
        """The action with the keys that this person has for it."""
        return with_own_keys(action, self._keymap)

    def footer(self) -> tuple[list[Span], tuple[Span, ...]]:
        """Hints at the left, the findings at the right."""
        app = self._app
        count, status = len(app.frame.findings), app.frame.worst_finding
        said = f"{GLYPHS[status]} {count} finding{'s' * (count != 1)} " if count else "no findings "
        right = (Span(said, status if count else "muted"),)
        actions = [*app.view.actions, *in_scope("lines"), *app.everywhere]
        actions.sort(key=lambda action: action.id not in app.view.footer_actions)
        screen = app.screen_stack[0]
        if isinstance(screen.focused, Input | TextArea):  # there a letter is a letter
            typed = "sql" if isinstance(screen.focused, TextArea) else "filter"
            actions = [*in_scope(typed), *(action for action in actions if action.id == "app.palette")]
        room = app.size.width - len(said) - 2
        return hints(screen.active_bindings, [self.own(action) for action in actions], room), right

    def keys_dialog(self) -> KeysDialog:
        """The keys of the focused view first, then those that work everywhere."""
        view = self._app.view
        here = next((row.title for row in VIEWS if row.name == view.id), "")
        own = [*view.actions, *(in_scope("lines") if view.initial_focus() else [])]
        everywhere = [*self._app.everywhere, *(row.action for row in VIEWS)]
        groups = [(here, own)] if own else []
        if any(action.call == "filter" for action in own):
            groups.append(("In the filter", in_scope("filter")))
        if self._app.view.id == "query":
            groups.append(("In the question", in_scope("sql")))
        groups.append(("Everywhere", everywhere))
        return KeysDialog([(title, [self.own(action) for action in actions]) for title, actions in groups])

    def offered(self) -> Iterator[tuple[Action, DOMNode]]:
        """What the palette offers, each with the node it is run on."""
        app = self._app
        for action in app.view.actions:
            if action.palette and app.view.check_action(action.call, ()):
                yield self.own(action), app.view
        for action in (*app.everywhere, *(row.action for row in VIEWS)):
            if action.palette and app.check_action(action.call.partition(".")[2], ()):
                yield self.own(action), app
