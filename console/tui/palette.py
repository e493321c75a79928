"""The command palette: every action of the keymap, the views, the themes, and nodes that are not connected."""

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

#: More nodes than this are not listed: when a whole fleet is down, it has one cause.
_MOST_NODES = 50


class PaletteCommand(NamedTuple):
    """One entry: its name, its help text, and what it runs."""

    name: str
    help: str
    run: IgnoreReturnCallbackType


class ConsoleCommands(Provider):
    """The commands that can run now."""

    async def discover(self) -> Hits:
        """All commands, before anything is typed."""
        for command in self._commands():
            yield DiscoveryHit(command.name, command.run, help=escape(command.help))

    async def search(self, query: str) -> Hits:
        """Commands that match in their name or, with a lower score, in their help text."""
        matcher = self.matcher(query)
        for command in self._commands():
            score = max(matcher.match(command.name), 0.8 * matcher.match(command.help))
            if score > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=escape(command.help))

    def _commands(self) -> Iterator[PaletteCommand]:
        app = cast("ConsoleApp", self.app)
        for action, target in app.guide.offered():
            name = action.label[0].upper() + action.label[1:]
            keys = f"   {key_names(action.keys)}" if action.keys else ""
            yield PaletteCommand(name, f"{action.help}{keys}", partial(app.run_action, action.call, target))
        for entry in app.view.palette_entries():
            yield PaletteCommand(*entry)
        for name in app.themes.names:
            yield PaletteCommand(f"Theme {name}", f"Use the {name} theme", partial(app.themes.use, name))
        for node in app.nodes.failed[:_MOST_NODES]:
            reconnect, remove = partial(app.nodes.reconnect, [node.name]), partial(app.nodes.remove, node.name)
            yield PaletteCommand(f"Reconnect {node.name}", node.reason or node.word, reconnect)
            yield PaletteCommand(f"Remove {node.name}", "Remove node (data kept)", remove)
