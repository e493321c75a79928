"""The console on a terminal: the frame around the views, the frame clock, and the way in and out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.actions import SkipAction
from textual.app import AutopilotCallbackType, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Container
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input

from ..config.follow import HostsFile
from ..hub import Control
from ..store import Store
from .care import Care
from .commands import ConsoleCommands
from .dialogs import Dialog, KeysDialog, StoryDialog
from .export_dialog import ExportDialog
from .exports import offers
from .jobfold import JobFold
from .keys import Action, bindings, in_scope
from .leaving import Leaving, stop_in_time
from .marks import LONGEST_NOTE, MarkDialog
from .models.header import header_spans
from .models.nodes import NodeSummary
from .models.spans import Span
from .pace import RATE_HZ, Pace, write_backlog
from .questions import Questions
from .screenshot import picture, save_svg
from .status import GLYPHS
from .theme_shelf import ThemeShelf
from .themed import ThemedApp
from .views.base import NodeWanted, View
from .views.nodes import Nodes
from .views.table import VIEWS
from .watch import Frame, Staging, Watch
from .widgets.bar import Bar
from .widgets.key_hints import hints
from .widgets.line_view import LineView
from .widgets.tab_bar import Tab, TabBar

#: A second Ctrl-C within this many seconds leaves.
_TWICE_S = 2.0
#: How often it is looked whether hosts.toml was saved, in seconds.
FOLLOW_S = 1.0


class ConsoleApp(ThemedApp, inherit_bindings=False):
    """One cluster on the screen.

    `control` acts on it. `on_start` is called once the app's event loop runs and must return at once; `on_stop` after
    the terminal is restored, and has 2.5 seconds. `staging` says how many nodes have py-spy, of how many. `live` is
    false in a replay, where now is the time of the newest record. `now` is console time in ns.
    `themes` are the person's own beside those of gconsole. `hosts` is the file that is read again when it is saved.
    """

    CSS_PATH = "console.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (22, "-tall")]  # noqa: RUF012 - as Textual declares it
    TITLE = "gconsole"
    COMMANDS = {ConsoleCommands}  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(row.action for row in VIEWS), *bindings(in_scope("app"))]

    def __init__(
        self,
        store: Store,
        control: Control,
        *,
        cluster: str,
        expected_nodes: Sequence[str],
        live: bool = True,
        staging: Staging | None = None,
        on_start: Callable[[], Awaitable[None]] | None = None,
        on_stop: Callable[[], Awaitable[None]] | None = None,
        now: Callable[[], int] = time.time_ns,
        themes: ThemeShelf | None = None,
        hosts: HostsFile | None = None,
    ) -> None:
        super().__init__(themes)
        self._control = control
        self.care = Care(self, control, hosts)
        self._questions = Questions(self)
        self._on_start, self._on_stop = on_start, on_stop
        self._watch = Watch(store, cluster, expected_nodes, live=live, now=now, staging=staging)
        self._fold = JobFold(self._watch, store)
        self._folding = False
        self._pace = Pace()
        self._frozen: Frame | None = None
        self._store = store
        self._folder = ""  # where the last file was saved
        self._interrupted_at = 0.0
        self._leaving = Leaving(lambda code: self.exit(return_code=code))
        self._current = VIEWS[0].name
        self._views: dict[str, View] = {}
        self.frame = self._watch.look()

    # -- the frame ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Bar(id="header")
        yield TabBar([Tab(row.name, row.key, row.title, row.short, row.action.call) for row in VIEWS], id="tabs")
        with Container(id="stage"):
            yield self._view(self._current)
        yield Bar(id="footer")

    async def on_mount(self) -> None:
        self._header, self._tabs = self.query_one("#header", Bar), self.query_one("#tabs", TabBar)
        self._footer, self._stage = self.query_one("#footer", Bar), self.query_one("#stage", Container)
        self.screen.bindings_updated_signal.subscribe(self, self._draw_footer)
        self._present(self._current)
        self.set_interval(1 / RATE_HZ, self._tick, name="frame clock")
        self.set_interval(FOLLOW_S, self.care.follow, name="hosts.toml")
        self.set_interval(FOLLOW_S / 4, self._questions.look, name="questions")
        self.follow_themes()
        self.app_resume_signal.subscribe(self, self._repaint)
        if self._on_start is not None:
            await self._on_start()
        self.call_after_refresh(self._mount_rest)

    def _repaint(self, _: object) -> None:
        """Paint everything: after `fg` the terminal's screen is empty, and nothing need have changed on ours."""
        self.screen.refresh(layout=True)

    async def _mount_rest(self) -> None:
        """The other views, after the first paint: opening one is then a matter of showing it."""
        views = [self._view(row.name) for row in VIEWS]
        await self._stage.mount_all(view for view in views if not view.is_attached)

    def _view(self, name: str) -> View:
        if name not in self._views:
            row = next(row for row in VIEWS if row.name == name)
            self._views[name] = row.make(row)
            self._views[name].display = name == self._current
        return self._views[name]

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self._views[self._current]

    # -- the frame clock ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.screen_stack:
            return  # the app is on its way out, and its clock ticks once more
        if self._pace.is_due(write_backlog(self._driver)):
            began = time.perf_counter()
            self.draw()
            self.call_after_refresh(lambda: self._pace.painted(time.perf_counter() - began))

    def draw(self) -> None:
        """Look at the store and show what changed; while frozen only the header is new."""
        self.frame = frame = self._watch.look(self._frozen)
        if self._frozen is None:
            self._fold_jobs(frame)
            self.view.look(frame)
            if isinstance(self.screen, Dialog):
                self.screen.look(frame)
        self._header.show(header_spans(frame.header, self.size.width))
        self._draw_footer()

    @property
    def is_current(self) -> bool:
        """Whether every view is there and the jobs on the screen are folded from all that the store knows."""
        mounted = all(name in self._views and self._views[name].is_mounted for name in (row.name for row in VIEWS))
        return mounted and not self._folding and self._fold.is_current(self.frame)

    def _fold_jobs(self, frame: Frame) -> None:
        if self._folding or not self._fold.is_wanted(frame):
            return
        fold = self._fold.prepare(frame)
        if not self._fold.is_large:
            self._fold.accept(fold())
            return

        async def in_thread() -> None:
            try:
                self._fold.accept(await asyncio.to_thread(fold))
            finally:
                self._folding = False

        self._folding = True
        self.run_worker(in_thread(), name="fold jobs")

    def _draw_footer(self, _: object = None) -> None:
        count, status = len(self.frame.findings), self.frame.worst_finding
        said = f"{GLYPHS[status]} {count} finding{'s' * (count != 1)} " if count else "no findings "
        right = (Span(said, status if count else "muted"),)
        actions = [*in_scope(self.view.scope), *in_scope("lines"), *in_scope("app")]
        if isinstance(self.screen_stack[0].focused, Input):  # there a letter is a letter
            actions = [action for action in actions if action.id == "app.palette"]
            actions = [*in_scope("filter"), *actions]
        screen = self.screen_stack[0]
        room = self.size.width - len(said) - 2
        self._footer.show(hints(screen.active_bindings, actions, room), right)

    # -- views and dialogs -------------------------------------------------------------------------------------------

    async def action_show(self, name: str) -> None:
        """Open a view."""
        view = self._view(name)
        if not view.is_attached:
            await self._stage.mount(view)
        self._present(name)

    def _present(self, name: str) -> None:
        self.view.display = False
        self._current = name
        self.view.display = True
        self._tabs.show(name)
        if self._frozen is None:
            self.view.look(self.frame)
        home = self.view.home()
        self.screen.set_focus(home)
        self.refresh_bindings()

    async def action_back(self) -> None:
        """Climb out: of what is open in the view, then back to the Overview."""
        if not self.view.climb() and self._current != VIEWS[0].name:
            self._present(VIEWS[0].name)

    def action_keys(self) -> None:
        """List the keys: of the focused widget and its view first."""
        here = next((row.title for row in VIEWS if row.name == self._current), "")
        own = [*in_scope(self.view.scope), *(in_scope("lines") if self.view.home() else [])]
        everywhere = [*in_scope("app"), *(row.action for row in VIEWS)]
        groups = [(here, own)] if own else []
        if any(action.call == "filter" for action in own):
            groups.append(("In the filter", in_scope("filter")))
        self.push_screen(KeysDialog([*groups, ("Everywhere", everywhere)]))

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        tell = self.view.teller()
        if tell is not None and tell(self.frame) is not None:
            self.push_screen(StoryDialog(tell, self.frame))

    async def on_node_wanted(self, event: NodeWanted) -> None:
        """Open the page of a node; Escape leads back."""
        await self.action_show("nodes")
        if isinstance(self.view, Nodes):
            self.view.open(event.node, visiting=True)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self.refresh_bindings()

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """None of Textual's own: the palette has ours, and only what works."""
        return iter(())

    def offered_actions(self) -> Iterator[tuple[Action, DOMNode]]:
        """What the palette offers, each with the node it is run on."""
        for action in in_scope(self.view.scope):
            if action.palette:
                yield action, self.view
        for action in (*(row.action for row in VIEWS), *in_scope("app")):
            if action.palette and self._check(action):
                yield action, self

    def _check(self, action: Action) -> bool:
        return bool(self.check_action(action.call.partition(".")[2], ()))

    # -- acting ------------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions on a node are dimmed while none is selected."""
        if action in ("reconnect", "remove", "examine"):
            return True if self._views and self.view.selected_node else None
        return True

    async def action_run_bound(self, id: str) -> None:
        """Do what the key of that binding would do here: a click on a hint."""
        for item in self.screen.active_bindings.values():
            if item.binding.id == id and item.enabled:
                await self.run_action(item.binding.action, item.node)
                return

    def action_freeze(self) -> None:
        """Freeze the picture, or let it go."""
        if self._frozen is not None:
            self._frozen = None
        else:
            self._frozen = self.frame = self.frame.standing_still()
            for view in self._views.values():
                if view.is_mounted:
                    view.look(self.frame)  # all views of one instant, whichever is opened later
        self.draw()

    async def action_reconnect(self) -> None:
        """Connect to the selected node again."""
        node = self.view.selected_node
        if node is not None:
            await self.care.reconnect([node])

    async def action_reconnect_failed(self) -> None:
        """Connect again to every node that is not here."""
        await self.care.reconnect([node.name for node in self.troubled_nodes()])

    def action_add_nodes(self) -> None:
        self.care.add()

    def action_remove(self) -> None:
        """Let go of the selected node, after a question."""
        if self.view.selected_node is not None:
            self.care.remove(self.view.selected_node)

    def action_examine(self) -> None:
        """Let the doctor look at the selected node."""
        if self.view.selected_node is not None:
            self.care.examine([self.view.selected_node])

    def action_examine_all(self) -> None:
        self.care.examine([node.name for node in self.frame.fleet.nodes])

    async def ask(self, who: str, prompt: str) -> str | None:
        """A login asks the person for a secret: `who` wants what `prompt` says. None where they leave it out."""
        return await self._questions.ask(who, prompt)

    def action_save_svg(self) -> None:
        """Save what is on the screen, and say where."""
        try:
            path = save_svg(self.export_screenshot(title=f"gconsole {self.frame.header.cluster}"))
        except OSError as error:
            self.notify(f"no screenshot: {error.strerror}: {Path.cwd()}", severity="error", markup=False)
            return
        self.notify(f"saved {path}", markup=False)

    def action_export(self) -> None:
        """Open the dialog that saves: what the view shows, the screen, the report, the stacks."""
        drawn = picture(self, f"gconsole {self.frame.header.cluster}")
        dialog = ExportDialog(offers(self.view.sheets(), drawn, self._store), self.frame.header.cluster, self._folder)

        def left(_: None) -> None:
            self._folder = dialog.folder

        self.push_screen(dialog, left)

    def action_suspend_process(self) -> None:
        """Put the console into the background; `fg` brings it back. Where no shell could, say so instead."""
        if os.getsid(0) == os.getpid():
            self.notify("no shell started this console, so nothing could bring it back", severity="warning")
        else:
            super().action_suspend_process()

    def action_mark(self) -> None:
        """Ask for a note, and keep it with this instant."""
        self.push_screen(MarkDialog(), self._mark)

    async def _mark(self, text: str | None) -> None:
        if text and text.strip():
            await self._control.mark(text.strip()[:LONGEST_NOTE])
            self.notify("marked; it stands in Events", timeout=3, markup=False)

    def troubled_nodes(self) -> list[NodeSummary]:
        """Nodes that are not here, as last seen."""
        return [node for node in self.frame.fleet.nodes if node.status in ("failed", "stale")]

    # -- the way out -------------------------------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl-C: copy what is selected; where nothing is, the second one leaves."""
        focused = self.focused
        if self.screen.get_selected_text() or (isinstance(focused, Input) and focused.selected_text):
            raise SkipAction
        if time.monotonic() - self._interrupted_at <= _TWICE_S:
            self.exit()
            return
        self._interrupted_at = time.monotonic()
        self.notify("Ctrl-C again leaves", timeout=_TWICE_S)

    async def run_async(
        self, *, headless: bool = False, inline: bool = False, inline_no_clear: bool = False, mouse: bool = True,
        size: tuple[int, int] | None = None, auto_pilot: AutopilotCallbackType | None = None,
    ) -> None:  # fmt: skip
        """Run until the person leaves; then, with the terminal restored, `on_stop`. Raises what ended the app."""
        self._leaving.watch()
        try:
            await super().run_async(
                headless=headless, inline=inline, inline_no_clear=inline_no_clear, mouse=mouse, size=size,
                auto_pilot=auto_pilot,
            )  # fmt: skip
        finally:
            if self._on_stop is not None:
                await stop_in_time(self._on_stop)
            self._leaving.done()
        if self._exception is not None:
            raise self._exception
        return self.return_value

    def _fatal_error(self) -> None:
        """No traceback over the terminal: `run_async` raises the error, and the command line tells it in one line."""
        self._close_messages_no_wait()
