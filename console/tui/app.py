"""The console on a terminal: the bars around the views, and the controllers that act."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from ..analysis.checks.result import CheckResult
from ..config.diff import HostsFile
from ..core.control import Control
from ..core.evaluation import Evaluator
from ..core.store import Store
from ..monitor.finding_tracker import FindingTracker
from ..monitor.stall_watch import StallWatch
from ..records import Log
from ..text import logs
from .base_app import BaseApp
from .controllers.bookmarks import BookmarkController
from .controllers.capture import CaptureController
from .controllers.clipboard import ClipboardTarget, picture
from .controllers.clusters import ClusterSource, ClusterSwitcher
from .controllers.evaluation import EvaluationController
from .controllers.frames import RATE_HZ, FrameController, write_backlog
from .controllers.job_tasks import JobSource, JobTaskController
from .controllers.jobs import JobController
from .controllers.nodes import NodeController
from .controllers.query import QueryController
from .controllers.recording import RecordingController
from .controllers.row_commands import RowCommandController
from .controllers.view_switcher import ViewSwitcher
from .dialogs.dialog import DetailDialog, LogDialog
from .dialogs.export import ExportDialog
from .dialogs.prompts import LoginPrompts
from .exports import export_items
from .keymap.actions import NEXT_CLUSTER, Action, bindings, in_scope, key_names
from .keymap.file import NO_KEYS, OwnKeys
from .keymap.hints import ConsoleCommands, ConsolePalette, KeyGuide
from .keymap.row_commands import NO_COMMANDS, CommandFileContents
from .models.destination import LONGEST, Destination, as_link
from .models.header import header_spans
from .snapshot import ScreenSnapshot, Staging
from .theme.catalog import ThemeCatalog
from .ui_state import SAVE_EVERY_S, UiStateController, UiStateFile
from .views.base import View
from .views.registry import VIEWS
from .widgets.bars import Bar, Tab, TabBar
from .widgets.line_view import LineView

#: Views during which clocks are probed continuously.
_CLOCK_VIEWS = ("skew", "clocks")
#: Seconds between two checks whether hosts.toml was saved, and between two attempts to open a login prompt.
_HOSTS_EVERY_S, _LOGIN_EVERY_S = 1.0, 0.25
#: Seconds until key hints follow data that enable or disable a key: to list them takes a tenth of a frame.
_FOOTER_EVERY_S = 1.0


class ConsoleApp(BaseApp, inherit_bindings=False):
    """One cluster on the screen.

    `control` acts on it. `on_start` is called once the app's event loop runs and must return at once; `on_stop` runs
    after the terminal is restored, and has 2.5 seconds. `staging` returns how many nodes have py-spy, of how many.
    `live` is false in a replay. `now` returns console time in ns: in a replay, of the instant that is shown.
    `hosts` is the hosts.toml to follow. `publish` puts a record into Events. `themes`, `keys` and `ui_state` are the
    user's. `findings` are evaluated while the screen runs; None in a replay, which has the recorded ones. `recorded`
    is the path of the session that is shown, which queries read instead of the store. `stalls` says which jobs to
    diagnose automatically. `app_actions` work in all views. `target` is what opened the screen, for links to it, and
    `place` where it begins. `others` are further clusters, of which keys show one at a time.
    `commands` are those of the user. `job_source` is what starting jobs needs, `evaluator` evaluates expressions in
    ranks; None where the screen may not. `own_checks` has the results of the user's checks of a node.
    """

    CSS_PATH = "console.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (22, "-tall")]  # noqa: RUF012 - as Textual declares it
    TITLE = "gconsole"
    COMMANDS = {ConsoleCommands}  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(row.action for row in VIEWS), *bindings(in_scope("app"))]

    def __init__(
        self, store: Store, control: Control, *, cluster: str, expected_nodes: Sequence[str], live: bool = True,
        staging: Staging | None = None, on_start: Callable[[], Awaitable[None]] | None = None,
        on_stop: Callable[[], Awaitable[None]] | None = None, now: Callable[[], int] = time.time_ns,
        hosts: HostsFile | None = None, publish: Callable[[Log], object] = lambda log: None,
        clipboard: ClipboardTarget = "osc52", themes: ThemeCatalog | None = None, keys: OwnKeys = NO_KEYS,
        ui_state: UiStateFile | None = None, findings: FindingTracker | None = None, recorded: Path | None = None,
        stalls: StallWatch | None = None, app_actions: Sequence[Action] = tuple(in_scope("app")),
        target: str = "", place: Destination | None = None, others: Sequence[ClusterSource] = (),
        commands: CommandFileContents = NO_COMMANDS, job_source: JobSource | None = None,
        evaluator: Evaluator | None = None,
        own_checks: Callable[[str], Sequence[CheckResult]] = lambda node: (), remembers_theme: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            themes, on_stop=on_stop, clipboard=clipboard, picture_title=f"gconsole {cluster}",
            remembers_theme=remembers_theme,
        )  # fmt: skip
        self.is_live = live
        self._place = place
        self._export_folder = ""  # where the last file was saved
        self.login_prompts = LoginPrompts(self)
        self.guide = KeyGuide(self, keys, app_actions, publish)
        self.clusters = ClusterSwitcher(self)
        self.bookmarks = BookmarkController(self)
        self.row_commands = RowCommandController(self, commands)
        own = ClusterSource(
            store, control, cluster, expected_nodes, live, staging, on_start, now, hosts, publish, ui_state, findings,
            recorded, stalls, target, job_source, evaluator, own_checks,
        )  # fmt: skip
        self.clusters.open([own, *others])
        self.shutdown.before_stop = self._save_ui_states
        self._action_targets |= {
            "ui_state", "views", "captures", "nodes", "recordings", "frames", "guide", "clusters", "row_commands",
            "bookmarks", "evaluations",
        }  # fmt: skip

    # -- the cluster on the screen -------------------------------------------------------------------------------------

    @property
    def ui_state(self) -> UiStateController:
        """Its arrangement."""
        return self.clusters.current.ui_state

    @property
    def views(self) -> ViewSwitcher:
        """Its views."""
        return self.clusters.current.views

    @property
    def captures(self) -> CaptureController:
        """Its captures."""
        return self.clusters.current.captures

    @property
    def jobs(self) -> JobController:
        """Its jobs."""
        return self.clusters.current.jobs

    @property
    def job_tasks(self) -> JobTaskController:
        """What starts its jobs and copies their files."""
        return self.clusters.current.job_tasks

    @property
    def evaluations(self) -> EvaluationController:
        """What evaluates expressions in its ranks."""
        return self.clusters.current.evaluations

    @property
    def nodes(self) -> NodeController:
        """Its nodes."""
        return self.clusters.current.nodes

    @property
    def queries(self) -> QueryController:
        """Its queries."""
        return self.clusters.current.queries

    @property
    def recordings(self) -> RecordingController:
        """Its recordings."""
        return self.clusters.current.recordings

    @property
    def frames(self) -> FrameController:
        """Its frames."""
        return self.clusters.current.frames

    @property
    def frame(self) -> ScreenSnapshot:
        """What the views show; while paused, of the instant of the pause."""
        return self.frames.frame

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self.views.view

    async def show_store(self, store: Store) -> None:
        """Show another store from now on: the views are created anew, arranged as they were."""
        cluster = self.clusters.current
        await cluster.views.recreate(lambda: cluster.use_store(store))
        self.frames.draw()

    def compose(self) -> ComposeResult:
        yield Bar(id="header")
        self._other_bars = [Bar(classes="cluster") for _ in self.clusters.others]
        keys = {row.name: key_names(self.guide.own(row.action).keys) for row in VIEWS}
        tabs = [Tab(row.name, keys[row.name], row.title, row.short, row.action.call) for row in VIEWS]
        yield TabBar(tabs, id="tabs")
        yield from self._other_bars
        for cluster in self.clusters.all:
            with Container(id=cluster.stage_id, classes="stage") as stage:
                if cluster is self.clusters.current:
                    yield self.views.get(self.views.current)
                else:
                    stage.display = False
        yield from self.below_the_view()
        yield Bar(id="footer")

    def below_the_view(self) -> Iterable[Widget]:
        """Widgets between the view and the footer."""
        return ()

    async def on_mount(self) -> None:
        self._footer_basis: tuple[object, ...] = ()  # what it was drawn from
        self._footer_drawn = 0.0  # when, monotonic
        self._header, self._tabs = self.query_one("#header", Bar), self.query_one("#tabs", TabBar)
        self._footer, self.views.stage = self.query_one("#footer", Bar), self.query_one("#stage", Container)
        self.screen.bindings_updated_signal.subscribe(self, self._draw_footer)
        self.views.present(self.views.current)
        self.set_interval(1 / RATE_HZ, self._tick, name="frame clock")
        for cluster in self.clusters.all:
            self.set_interval(_HOSTS_EVERY_S, cluster.nodes.follow_hosts_file, name="hosts.toml")
        self.set_interval(_LOGIN_EVERY_S, self.login_prompts.open_next, name="login prompts")
        self.themes.follow()
        self.guide.install()
        self.row_commands.install()
        for cluster in self.clusters.all:
            cluster.ui_state.report()
        self.set_interval(SAVE_EVERY_S, lambda: self.ui_state.save(), name="UI state")
        self.app_resume_signal.subscribe(self, self.repaint)
        for cluster in self.clusters.all:
            if cluster.source.on_start is not None:
                await cluster.source.on_start()
        if self._place is not None:
            self.call_later(partial(self.views.open_place, self._place, is_whole=True))

    def on_unmount(self) -> None:
        for cluster in self.clusters.all:
            cluster.queries.client.close()

    def _save_ui_states(self) -> None:
        for cluster in self.clusters.all:
            cluster.ui_state.close()

    def on_resize(self) -> None:
        """Redraw the bars for the new width; views under a dialog are painted only with the dialog."""
        self.call_after_refresh(self._draw_resized)

    def _draw_resized(self) -> None:
        self.frames.draw()
        if len(self.screen_stack) > 1:
            self.call_after_refresh(self.screen.refresh)

    def _tick(self) -> None:
        self.frames.tick(write_backlog(self._driver))
        if self.clusters.evaluate_others():
            self._draw_other_clusters()

    def _draw_other_clusters(self) -> None:
        """A line for each cluster that is not shown, with its worst finding."""
        if self.frames.is_exiting:
            return
        key = key_names(self.guide.own(NEXT_CLUSTER).keys)
        lines = self.clusters.lines(self.size.height, key)
        for number, bar in enumerate(self._other_bars):
            bar.display = number < len(lines)
            if bar.display:
                bar.show(*lines[number])

    def permits(self, call: str) -> bool:
        """Whether the user of this screen may run the action."""
        return True

    def show_view(self, name: str) -> None:
        """Called with the name of the view that is shown from now on."""
        if self._other_bars:
            self._draw_other_clusters()
        self._tabs.show(name)
        self.clusters.current.control.request_clock_probes("screen", name in _CLOCK_VIEWS)
        self.view.show_snapshot(self.frame)

    def draw_bars(self, frame: ScreenSnapshot) -> None:
        """Draw header and footer."""
        self._follow_cursor()
        self._header.show(header_spans(frame.header, self.size.width))
        basis = (len(frame.findings), frame.worst_finding, self.size, self.view.id, self.focused)
        if basis != self._footer_basis or time.monotonic() - self._footer_drawn >= _FOOTER_EVERY_S:
            self._footer_basis = basis
            self._draw_footer()

    def _draw_footer(self, _: object = None) -> None:
        if not self.frames.is_exiting:
            self._footer_drawn = time.monotonic()
            self._footer.show(*self.guide.footer())

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """None of Textual's own commands: the palette lists the console's."""
        return iter(())

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        provider = self.view.detail_provider()
        if provider is not None and provider(self.frame) is not None:
            self.push_screen(DetailDialog(provider, self.frame))

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if not self.frames.is_exiting:
            self._follow_cursor()
            self.refresh_bindings()

    def _follow_cursor(self) -> None:
        """Put the terminal's cursor on what has the focus: screen readers and magnifiers follow it.

        That is a line, a cell, where text is typed, or the beginning of the widget, or of its view if it is empty.
        """
        focused = self.focused
        if focused is None:
            return
        if isinstance(focused, Input | TextArea):
            self.cursor_position = focused.cursor_screen_offset
        else:
            place = focused.cursor_place if isinstance(focused, LineView) else None
            self.cursor_position = place or (focused if focused.region else self.view).content_region.offset

    async def action_quit(self) -> None:
        """Quit; during a recording only at the second attempt."""
        permissions = [cluster.recordings.may_quit() for cluster in self.clusters.all]  # each is asked
        if all(permissions):
            self.exit()

    def action_command_palette(self) -> None:
        """Open the command palette."""
        if not isinstance(self.screen, ConsolePalette):
            self.push_screen(ConsolePalette(id="--command-palette"))

    def action_link(self) -> None:
        """Copy the command that opens this screen: of this target, at this instant in a replay."""
        target = self.clusters.current.source.target
        if not target:
            self.notify("no target to link to", timeout=4, markup=False)
            return
        place = msgspec.structs.replace(self.views.place, at=0 if self.is_live else self.frame.now)
        link = as_link(place, target)
        if len(link) > LONGEST:
            text = f"the link would have {len(link):,} characters, at most {LONGEST:,}: shorten the filter"
            self.notify(text, severity="warning", markup=False)
            return
        self.clip.copy(f"gconsole link {shlex.quote(link)}", "the link to this screen")

    def action_log(self) -> None:
        """Show the end of the console's log."""
        self.push_screen(LogDialog(logs.path()))

    def action_export(self) -> None:
        """Open the export dialog with everything that can be saved now."""
        cluster = self.frame.header.cluster
        items = export_items(
            self.view.export_tables(), picture(self, self.clip.picture_title), self.clusters.current.store,
            self.captures.shape,
            cluster=cluster, recorded=self.queries.recorded, recordings=self.recordings.running,
        )  # fmt: skip
        dialog = ExportDialog(items, cluster, self.frame.now, self._export_folder)

        def closed(_: None) -> None:
            self._export_folder = dialog.folder

        self.push_screen(dialog, closed)
