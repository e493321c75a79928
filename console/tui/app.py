"""The console on a terminal: the frame around the views, and the frame clock."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from ..config.watch_file import HostsFile
from ..core.control import Control
from ..core.store import Store
from ..monitor.finding_tracker import FindingTracker
from ..monitor.topology_findings import TopologyFindings
from ..records import Log
from .clipboard import Where
from .controllers.jobs import JobActions, JobOutputs, JobStops
from .controllers.node_actions import NodeActions
from .controllers.nodes import Care
from .controllers.query import QueryActions
from .controllers.recording import RecordingActions, Tapes
from .controllers.stacks import StackActions, Stacks
from .controllers.view_switcher import ViewsApp
from .dialogs.dialog import Dialog, StoryDialog
from .dialogs.export import ExportDialog
from .dialogs.mark import LONGEST_NOTE, MarkDialog
from .exports import offers
from .folds.clocks import ClockSkewFold
from .folds.jobs import JobFold
from .frame_rate import RATE_HZ, Pace, write_backlog
from .keymap.actions import Action, bindings, in_scope, key_names
from .keymap.file import NO_KEYS, OwnKeys
from .keymap.hints import Guide
from .login_prompts import Questions
from .models.header import header_spans
from .palette import ConsoleCommands
from .query_client import Asking
from .screenshot import picture
from .snapshot import Frame, Staging, Watch
from .theme.catalog import ThemeShelf
from .ui_state.store import Memory
from .views.registry import VIEWS
from .widgets.bar import Bar
from .widgets.line_view import LineView
from .widgets.tab_bar import Tab, TabBar

#: Views for which the clocks are probed without pause.
BY_THE_CLOCK = ("skew", "clocks")
#: How often it is looked whether hosts.toml was saved, in seconds.
FOLLOW_S = 1.0


class ConsoleApp(
    NodeActions, StackActions, JobActions, QueryActions, RecordingActions, ViewsApp, inherit_bindings=False
):  # fmt: skip
    """One cluster on the screen.

    `control` acts on it. `on_start` is called once the app's event loop runs and must return at once; `on_stop` after
    the terminal is restored, and has 2.5 seconds. `staging` says how many nodes have py-spy, of how many. `live` is
    false in a replay, which says so. `now` is console time in ns: in a replay, of the instant that is shown.
    `hosts` is the file that is read again when it is saved. `say` takes what belongs into Events.
    `themes` and `keys` are the person's own beside those of gconsole, `memory` is what they arranged the last time.
    `findings` are looked for while the screen is there; None in a replay, which has those that were recorded.
    `recorded` is the session that is shown, for questions; without one they go to the store.
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
        hosts: HostsFile | None = None,
        say: Callable[[Log], None] | None = None,
        clipboard: Where = "osc52",
        themes: ThemeShelf | None = None,
        keys: OwnKeys = NO_KEYS,
        memory: Memory | None = None,
        findings: FindingTracker | None = None,
        recorded: Path | None = None,
    ) -> None:
        super().__init__(
            themes, keys, memory or Memory(), on_stop, say,
            on_shown=lambda name: control.want_clocks("screen", name in BY_THE_CLOCK),
        )  # fmt: skip
        self.clipboard_where, self.picture_title = clipboard, f"gconsole {cluster}"
        self._control, self._findings = control, findings
        self.care = Care(self, control, hosts)
        self._questions = Questions(self)
        self._recorded = recorded
        self.job_stops = JobStops(self, control, cluster)
        self._job_outputs = JobOutputs(
            control, partial(self.run_worker, name="output of a job"), lambda text: self.view.show_note(text)
        )
        self._on_start = on_start
        self._watch_of = partial(
            Watch,
            cluster=cluster,
            expected_nodes=expected_nodes,
            live=live,
            now=now,
            staging=staging,
            recordings=lambda: self.tapes.running,
        )
        self.tapes = Tapes(self, control, cluster, lambda: self._watch.now())
        self._take_store(store)
        self._pace = Pace()
        self._frozen: Frame | None = None
        self._folder = ""  # where the last file was saved
        self.guide = Guide(self, keys.keymap)
        self.frame = self._watch.look()

    def _take_store(self, store: Store) -> None:
        self._store = store
        self._watch = self._watch_of(store)
        self._fold = JobFold(self._watch, store)
        self._time = ClockSkewFold(store)
        findings = self._findings
        self._differing = TopologyFindings(store, self._watch.topology, findings) if findings is not None else None
        self.stacks = Stacks(self, store, self._control, self._findings)
        self.asking = Asking(store, self._recorded)

    @property
    def is_frozen(self) -> bool:
        return self._frozen is not None

    @property
    def everywhere(self) -> list[Action]:
        """The actions that are not of one view."""
        return in_scope("app")

    async def show_store(self, store: Store) -> None:
        """Look at another store from now on: the views are made anew, arranged as they were."""

        def look_elsewhere() -> None:
            self._take_store(store)
            self.frame = self._watch.look()

        await self._renew_views(look_elsewhere)
        self.draw()
        self.call_after_refresh(self._mount_rest)

    # -- the frame ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Bar(id="header")
        keys = {row.name: key_names(self.guide.own(row.action).keys) for row in VIEWS}
        tabs = [Tab(row.name, keys[row.name], row.title, row.short, row.action.call) for row in VIEWS]
        yield TabBar(tabs, id="tabs")
        with Container(id="stage"):
            yield self._view(self._current)
        yield from self.below_the_view()
        yield Bar(id="footer")

    def below_the_view(self) -> Iterable[Widget]:
        """What stands between the view and the footer."""
        return ()

    async def on_mount(self) -> None:
        self._header, self._tabs = self.query_one("#header", Bar), self.query_one("#tabs", TabBar)
        self._footer, self._stage = self.query_one("#footer", Bar), self.query_one("#stage", Container)
        self.screen.bindings_updated_signal.subscribe(self, self._draw_footer)
        self._present(self._current)
        self.set_interval(1 / RATE_HZ, self._tick, name="frame clock")
        self.set_interval(FOLLOW_S, self.care.follow, name="hosts.toml")
        self.set_interval(FOLLOW_S / 4, self._questions.look, name="questions")
        self.follow_themes()
        self.follow_person()
        self.app_resume_signal.subscribe(self, self.repaint)
        if self._on_start is not None:
            await self._on_start()
        self.call_after_refresh(self._mount_rest)

    def on_resize(self) -> None:
        """Header and footer are made for a width; what lies under a dialog is painted with the dialog only."""
        self.call_after_refresh(self._draw_resized)

    def _draw_resized(self) -> None:
        self.draw()
        if len(self.screen_stack) > 1:
            self.call_after_refresh(self.screen.refresh)

    # -- the frame clock ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_leaving:
            return
        if self._findings is not None and self._findings.is_due:
            self.run_worker(self._look_for_findings(), name="findings")
        if self._pace.is_due(write_backlog(self._driver)):
            began = time.perf_counter()
            self.draw()
            self.call_after_refresh(lambda: self._pace.painted(time.perf_counter() - began))

    @property
    def _is_leaving(self) -> bool:
        """Whether the screens are gone already, while the clock, a cursor or a fold wants to draw once more."""
        return not self.screen_stack

    async def _look_for_findings(self) -> None:
        """Also while the picture is frozen, and in whichever view."""
        if self._findings is not None and self._differing is not None:
            await self._findings.look()
            await self._differing.look()

    def draw(self) -> None:
        """Look at the store and show what changed; while frozen only the header is new."""
        if self._is_leaving:
            return
        frame = self._watch.look(self._frozen)
        if self._frozen is None:
            header = replace(frame.header, clock_ns=self._time.seen.clocks.worst_ns)
            frame = replace(
                frame, hang=self.stacks.seen, capturing=self.stacks.under_way, time=self._time.seen, header=header
            )
        self.frame = frame
        if self._frozen is None:
            self._fold.look(frame, partial(self.run_worker, name="fold jobs"))
            self.stacks.look(partial(self.run_worker, name="judge"))
            self._time.look(frame.now, self._is_lateness_shown, partial(self.run_worker, name="fold time"))
            self.view.show_snapshot(frame)
            self._job_outputs.look(self.view.watched_job, frame)
            if isinstance(self.screen, Dialog):
                self.screen.look(frame)
        self._header.show(header_spans(frame.header, self.size.width))
        self._draw_footer()

    @property
    def is_current(self) -> bool:
        """Whether every view is there and the jobs on the screen are folded from all that the store knows."""
        is_folded = self._fold.is_current(self.frame) and self.stacks.is_current
        return self.has_every_view and is_folded and self._is_time_current

    @property
    def _is_time_current(self) -> bool:
        is_folded = self._time.is_current(self._is_lateness_shown) and self.frame.time is self._time.seen
        return self._frozen is not None or is_folded

    @property
    def _is_lateness_shown(self) -> bool:
        return self._current == "skew"

    def _draw_footer(self, _: object = None) -> None:
        self._footer.show(*self.guide.footer())

    # -- dialogs ---------------------------------------------------------------------------------------------------

    def action_keys(self) -> None:
        """List the keys: of the focused widget and its view first."""
        self.push_screen(self.guide.keys_dialog())

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        tell = self.view.detail_provider()
        if tell is not None and tell(self.frame) is not None:
            self.push_screen(StoryDialog(tell, self.frame))

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if not self._is_leaving:
            self.refresh_bindings()

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """None of Textual's own: the palette has ours, and only what works."""
        return iter(())

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

    async def action_quit(self) -> None:
        """Leave; while something is recorded, only the second time."""
        if self.tapes.may_leave():
            self.exit()

    def action_freeze(self) -> None:
        """Freeze the picture, or let it go."""
        if self._frozen is not None:
            self._frozen = None
        else:
            self._frozen = self.frame = self.frame.standing_still()
            for view in self._views.values():
                if view.is_mounted:
                    view.show_snapshot(self.frame)  # all views of one instant, whichever is opened later
        self.draw()

    async def ask(self, who: str, prompt: str) -> str | None:
        """A login asks the person for a secret: `who` wants what `prompt` says. None where they leave it out."""
        return await self._questions.ask(who, prompt)

    def action_export(self) -> None:
        """Open the dialog that saves: what the view shows, the screen, the report, the stacks."""
        drawn = picture(self, self.picture_title)
        cluster = self.frame.header.cluster
        there = offers(
            self.view.export_tables(), drawn, self._store, self.stacks.shape, cluster=cluster,
                recorded=self.asking.recorded,
            recordings=self.tapes.running,
        )  # fmt: skip
        dialog = ExportDialog(there, cluster, self.frame.now, self._folder)

        def left(_: None) -> None:
            self._folder = dialog.folder

        self.push_screen(dialog, left)

    def action_mark(self) -> None:
        """Ask for a note, and keep it with this instant."""
        self.push_screen(MarkDialog(), self._mark)

    async def _mark(self, text: str | None) -> None:
        if text and text.strip():
            await self._control.mark(text.strip()[:LONGEST_NOTE])
            self.notify("marked; it stands in Events", timeout=3, markup=False)
