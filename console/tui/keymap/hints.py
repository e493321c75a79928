"""Key hints in the footer, the `?` dialog and the command palette, from the table of actions and the keymap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace
from textual import work
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.markup import escape
from textual.widgets import Input, TextArea

from ...present.spans import GLYPHS, Span
from ...records import Log
from ...text import format
from ...text.format import plural
from ..controllers import Controller
from ..dialogs.dialog import KeysDialog
from ..views.registry import VIEWS
from ..widgets.bars import hints
from .actions import ACTIONS, APART, Action, PaletteCommand, in_scope, key_names, no_key
from .file import OwnKeys

if TYPE_CHECKING:
    from ..app import ConsoleApp


#: Textual's coroutine without the decorator that runs it as a worker.
_GATHER: Final[Callable[[CommandPalette, str], Awaitable[None]]] = CommandPalette._gather_commands.__wrapped__  # type: ignore[attr-defined]
#: More nodes than this are not listed: when a whole fleet is down, it has one cause.
_MOST_NODES = 50


def every_action() -> list[Action]:
    """All actions, those that open a view included."""
    return [*ACTIONS, *(row.action for row in VIEWS)]


def bound_actions() -> list[Action]:
    """Actions whose keys work while a view has the focus: a key of the user's commands must differ from theirs."""
    return [action for action in every_action() if action.scope not in APART]


class KeyGuide(Controller):
    """Lists the keys that work now. `app_actions` work in every view; `publish` puts a record into Events."""

    def __init__(
        self, app: ConsoleApp, keys: OwnKeys, app_actions: Sequence[Action], publish: Callable[[Log], object]
    ) -> None:
        self._app, self._keys, self._app_actions, self._publish = app, keys, app_actions, publish

    def install(self) -> None:
        """Apply the user's keymap, and report what is wrong with keys.toml. Call once the app is mounted."""
        self._app.set_keymap({id: keys or no_key(id) for id, keys in self._keys.keymap.items()})
        self._report("keys.toml", self._keys.complaints, "gconsole config keys lists all keys")
        self._report("commands.toml", self._app.row_commands.complaints, "see Commands in the guide to views")

    def _report(self, file: str, problems: Sequence[str], hint: str) -> None:
        for text in problems:
            self._publish(Log(source="console", severity="warning", text=text, try_=hint))
        if problems:
            text = f"{format.plural(len(problems), 'warning')}; see Events"
            self._app.notify(text, title=file, severity="warning", timeout=10, markup=False)

    def own(self, action: Action) -> Action:
        """The action with the user's keys."""
        keys = self._keys.keymap.get(action.id)
        return action if keys is None else replace(action, keys=keys, shown_key="")

    def footer(self) -> tuple[list[Span], tuple[Span, ...]]:
        """Key hints at the left, number of findings at the right."""
        app = self._app
        count, status = len(app.frame.findings), app.frame.worst_finding
        findings = f"{GLYPHS[status]} {plural(count, 'finding')} " if count else "no findings "
        right = (Span(findings, status if count else "muted"),)
        actions = [*filter(self._permits, app.view.actions), *in_scope("lines"), *self._app_actions]
        actions.sort(key=lambda action: action.id not in app.view.footer_actions)
        screen = app.screen_stack[0]
        if isinstance(screen.focused, Input | TextArea):  # there a letter is a letter
            typed = "sql" if isinstance(screen.focused, TextArea) else "filter"
            actions = [*in_scope(typed), *(action for action in actions if action.id == "app.palette")]
        room = app.size.width - len(findings) - 2
        return hints(screen.active_bindings, [self.own(action) for action in actions], room), right

    def action_show(self) -> None:
        """List the keys: those of the focused view first, then those that work everywhere."""
        view = self._app.view
        here = next((row.title for row in VIEWS if row.name == view.id), "")
        own = [*filter(self._permits, view.actions), *(in_scope("lines") if view.initial_focus() else [])]
        offered = [action for action in self._app_actions if self._check(action) is not False]
        everywhere = [*offered, *(row.action for row in VIEWS)]
        groups = [(here, own)] if own else []
        if any(action.call == "filter" for action in own):
            groups.append(("In the filter", in_scope("filter")))
        if self._app.view.id == "query":
            groups.append(("In the query", in_scope("sql")))
        if commands := self._app.row_commands.actions:
            groups.append(("Your commands", commands))
        groups.append(("Everywhere", everywhere))
        own_groups = [(title, [self.own(action) for action in actions]) for title, actions in groups]
        self._app.push_screen(KeysDialog(own_groups))

    def offered(self) -> Iterator[tuple[Action, DOMNode]]:
        """Actions for the palette, each with the node it runs on."""
        app = self._app
        for action in app.view.actions:
            if action.palette and app.permits(action.call) and app.view.check_action(action.call, ()):
                yield self.own(action), app.view
        for action in (*self._app_actions, *(row.action for row in VIEWS)):
            if action.palette and self._check(action):
                yield self.own(action), app

    def _permits(self, action: Action) -> bool:
        return self._app.permits(action.call)

    def _check(self, action: Action) -> bool | None:
        """Whether an action of the app can run: False never here, None not now."""
        namespace, _, name = action.call.partition(".")
        can_run: bool | None = getattr(self._app, namespace).check_action(name, ())
        return can_run


class ConsolePalette(CommandPalette):
    """The command palette, also before its first layout and on a terminal without room for a line of it."""

    def _action_command_list(self, action: str) -> None:
        commands = self.query_one(CommandList)
        if commands.scrollable_content_region:
            commands._update_lines()  # Textual 8.2 raises KeyError for a page key before this
            super()._action_command_list(action)

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        """Gather the commands that match, unless the palette was closed meanwhile: Textual 8.2 ends the app then."""
        try:
            await _GATHER(self, search_value)
        except NoMatches:
            if self.query(CommandList):
                raise


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
        yield from app.view.palette_entries()
        if app.permits("bookmarks.open"):
            yield from app.bookmarks.palette_entries()
        yield from app.clusters.palette_entries()
        yield from app.row_commands.palette_entries()
        for name in app.themes.names:
            yield PaletteCommand(f"Theme {name}", f"Use the {name} theme", partial(app.themes.use, name))
        for node in app.nodes.failed[:_MOST_NODES] if app.permits("nodes.reconnect") else ():
            reconnect, remove = partial(app.nodes.reconnect, [node.name]), partial(app.nodes.remove, node.name)
            yield PaletteCommand(f"Reconnect {node.name}", node.reason or node.word, reconnect)
            yield PaletteCommand(f"Remove {node.name}", "Remove node (data kept)", remove)
