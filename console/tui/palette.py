"""The command palette: every action of the table, the views, the themes, and the nodes that need a hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.markup import escape
from textual.types import IgnoreReturnCallbackType

from .keymap.actions import key_names

if TYPE_CHECKING:
    from .app import ConsoleApp

#: More nodes than this are not offered one by one; a fleet that is down as a whole has one cause.
_NODES = 50


class Command(NamedTuple):
    """One entry: its name, a sentence, and what it does."""

    name: str
    tells: str
    run: IgnoreReturnCallbackType


class ConsoleCommands(Provider):
    """What the console can do right now."""

    async def discover(self) -> Hits:
        for command in self._commands():
            yield DiscoveryHit(command.name, command.run, help=escape(command.tells))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = max(matcher.match(command.name), 0.8 * matcher.match(command.tells))
            if score > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=escape(command.tells))

    def _commands(self) -> Iterator[Command]:
        app = cast("ConsoleApp", self.app)
        for action, target in app.guide.offered():
            name = action.label[0].upper() + action.label[1:]
            keys = f"   {key_names(action.keys)}" if action.keys else ""
            yield Command(name, f"{action.tells}{keys}", partial(app.run_action, action.call, target))
        for entry in app.view.palette_entries():
            yield Command(*entry)
        for name in app.theme_names:
            yield Command(f"Theme {name}", f"Draw everything in the {name} theme", partial(app.use_theme, name))
        for node in app.troubled_nodes()[:_NODES]:
            yield Command(f"Reconnect {node.name}", node.reason or node.word, partial(app.care.reconnect, [node.name]))
            yield Command(f"Remove {node.name}", "Let go of it; its records stay", partial(app.care.remove, node.name))
