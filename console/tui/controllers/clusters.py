"""Several clusters on one screen: each with its own views and controllers, one of them shown."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from textual.containers import Container

from ...analysis.checks.result import CheckResult
from ...analysis.finding import name_of
from ...config.diff import HostsFile
from ...core.control import Control
from ...core.evaluation import Evaluator
from ...core.store import Store
from ...monitor.finding_tracker import FindingTracker
from ...monitor.stall_watch import StallWatch
from ...present.spans import GLYPHS, SEVERITY_STATUS, Span, Status
from ...records import Finding, Log
from ...text import format
from ...text.cells import clean
from ..keymap.actions import PaletteCommand
from ..snapshot import SnapshotBuilder, Staging, open_findings
from ..ui_state import UiStateController, UiStateFile
from ..views.registry import VIEWS
from . import Controller
from .capture import CaptureController
from .evaluation import EvaluationController
from .frames import FrameController
from .job_tasks import JobSource, JobTaskController
from .jobs import JobController
from .nodes import NodeController
from .query import QueryController
from .recording import RecordingController
from .view_switcher import ViewSwitcher

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Seconds between two evaluations of a cluster that is not shown, as between two digests of its nodes; as many as the
#: summary of its line is old at most.
BACKGROUND_S: Final = 5.0
#: Seconds after a full period until the records that nodes send half a second after it have arrived.
AFTER_RECORDS_S: Final = 1.0
#: Rows of the terminal for each line of another cluster; further ones are counted on the last line.
ROWS_PER_LINE: Final = 8


class ClusterSource(msgspec.Struct, frozen=True):
    """One cluster: its data, what acts on it, and the user's files for it; the fields are those of `ConsoleApp`."""

    store: Store
    control: Control
    cluster: str
    expected_nodes: Sequence[str]
    live: bool = True
    staging: Staging | None = None
    on_start: Callable[[], Awaitable[None]] | None = None
    now: Callable[[], int] = time.time_ns
    hosts: HostsFile | None = None
    publish: Callable[[Log], object] = lambda log: None
    ui_state: UiStateFile | None = None
    findings: FindingTracker | None = None
    recorded: Path | None = None
    stalls: StallWatch | None = None
    target: str = ""
    job_source: JobSource | None = None
    evaluator: Evaluator | None = None
    own_checks: Callable[[str], Sequence[CheckResult]] = lambda node: ()


class OpenCluster:
    """The views and controllers of one cluster. `stage` is the container of its views."""

    def __init__(self, app: ConsoleApp, source: ClusterSource, stage: str, *, is_first: bool) -> None:
        control, now = source.control, source.now
        self.source, self.store, self.control = source, source.store, control
        self.stage_id = stage
        file = source.ui_state or UiStateFile()
        self.ui_state = UiStateController(app, file, source.publish, lambda: self.views, sets_theme=is_first)
        first = self.ui_state.first_view([row.name for row in VIEWS])
        self.views = ViewSwitcher(app, first, lambda name: self.ui_state.stored.of(name), app.show_view)
        self.captures = CaptureController(
            app, self.store, control, source.findings, live=source.live, stalls=source.stalls
        )
        self.jobs = JobController(app, control, source.cluster)
        self.job_tasks = JobTaskController(app, self.store, control, source.job_source, live=source.live)
        self.evaluations = EvaluationController(app, source.evaluator, live=source.live)
        self.nodes = NodeController(app, control, source.hosts)
        self.queries = QueryController(app, self.store, source.recorded)
        self.recordings = RecordingController(app, control, source.cluster, now)
        snapshots = partial(
            SnapshotBuilder, cluster=source.cluster, expected_nodes=source.expected_nodes, live=source.live, now=now,
            staging=source.staging, recordings=lambda: self.recordings.running,
            black_box=lambda: self.recordings.black_box, own_checks=source.own_checks,
        )  # fmt: skip
        self.frames = FrameController(app, self.store, snapshots, source.findings)
        self._app, self._due_s = app, 0.0

    def use_store(self, store: Store) -> None:
        """Show this store from now on."""
        self.store = store
        for controller in (self.captures, self.queries, self.frames):
            controller.use_store(store)

    def evaluate_in_background(self) -> bool:
        """Evaluate findings and stalls where due, without drawing; whether it was due.

        Due `AFTER_RECORDS_S` after each full period of the real-time clock, when nodes have sent what they held back.
        """
        if time.monotonic() < self._due_s:
            return False
        self._due_s = time.monotonic() + BACKGROUND_S - (time.time() - AFTER_RECORDS_S) % BACKGROUND_S
        self.frames.evaluate_findings()
        self.captures.update(partial(self._app.run_worker, name="fold captures"))
        return True

    def leave(self) -> None:
        """Save its arrangement, and end what is requested for its screen only."""
        self._app.run_worker(self.ui_state.save(), name="UI state")
        self.control.request_clock_probes("screen", False)
        self.control.want("screen")
        self.jobs.stream_output(None, self.frames.frame)

    def line(self, number: int, key: str) -> tuple[Span, ...]:
        """`w dev  3/4 nodes  ✖ rank_dead: text`; a click shows the cluster."""
        states = [now.state.state if now.state else "" for now in self.store.nodes.values()]
        ok, expected = sum(state == "ok" for state in states), max(len(self.source.expected_nodes), len(states))
        worst = next(iter(open_findings(self.store)), None)
        status, text = _judged(worst, expected - ok)
        spans = (
            Span(f" {key} ", "key"), Span(f"{clean(self.source.cluster)}  ", "accent"),
            Span(format.seen(ok, expected), "text" if ok == expected else "warning"), Span(" nodes  ", "muted"),
            Span(f"{GLYPHS[status]} {clean(text)}", status if worst else "muted"),
        )  # fmt: skip
        return tuple(span._replace(action=f"clusters.show({number})") for span in spans)


def _judged(worst: Finding | None, unseen: int) -> tuple[Status, str]:
    """A cluster's status and what is said of it; without data of all nodes it is not `ok`."""
    if worst is not None:
        return SEVERITY_STATUS[worst.severity], f"{name_of(worst.id)}: {worst.text}"
    if unseen:
        return "unknown", f"no findings, but {format.plural(unseen, 'node')} not reporting"
    return "ok", "no findings"


class ClusterSwitcher(Controller):
    """The open clusters; `current` is on the screen."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self.all: list[OpenCluster] = []
        self._index = 0

    def open(self, sources: Sequence[ClusterSource]) -> None:
        """Create the views and controllers of these clusters; the first is shown."""
        for number, source in enumerate(sources):
            stage = "stage" if number == 0 else f"stage-{number + 1}"
            self.all.append(OpenCluster(self._app, source, stage, is_first=number == 0))
            source.control.in_background(number > 0)

    @property
    def current(self) -> OpenCluster:
        """The cluster on the screen."""
        return self.all[self._index]

    @property
    def others(self) -> list[tuple[int, OpenCluster]]:
        """The other clusters with their numbers, in the order in which the key leads to them."""
        count = len(self.all)
        places = [(self._index + step) % count for step in range(1, count)]
        return [(place + 1, self.all[place]) for place in places]

    def evaluate_others(self) -> bool:
        """Evaluate the clusters that are not shown; whether any was due."""
        return sum(cluster.evaluate_in_background() for _, cluster in self.others) > 0

    def lines(self, height: int, key: str) -> list[tuple[tuple[Span, ...], tuple[Span, ...]]]:
        """A line for each other cluster, as many as fit, with its right end; the key is that of the next cluster."""
        others = self.others
        most = max(1, height // ROWS_PER_LINE)
        keys = [key, *(" " * len(key) for _ in others)]
        lines = [cluster.line(number, keys[place]) for place, (number, cluster) in enumerate(others[:most])]
        hidden = len(others) - len(lines)
        more = (Span(f"  +{format.plural(hidden, 'cluster')} ", "muted"),) if hidden else ()
        return [(line, more if place == len(lines) - 1 else ()) for place, line in enumerate(lines)]

    def palette_entries(self) -> list[PaletteCommand]:
        """A command for each other cluster."""
        return [
            PaletteCommand(f"Cluster {clean(cluster.source.cluster)}", "Show this cluster",
                           partial(self._app.run_action, f"clusters.show({number})"))
            for number, cluster in self.others
        ]  # fmt: skip

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No keys without a second cluster."""
        return len(self.all) > 1

    async def action_next(self) -> None:
        """Show the next cluster."""
        await self._show((self._index + 1) % len(self.all))

    async def action_previous(self) -> None:
        """Show the previous cluster."""
        await self._show((self._index - 1) % len(self.all))

    async def action_show(self, number: int) -> None:
        """Show the cluster of that number, from 1."""
        if 1 <= number <= len(self.all):
            await self._show(number - 1)

    async def _show(self, index: int) -> None:
        app = self._app
        if index == self._index or not app.screen_stack:
            return
        before = self.current
        before.leave()
        app.query_one(f"#{before.stage_id}").display = False
        self._index = index
        cluster = self.current
        before.control.in_background(True)
        cluster.control.in_background(False)
        stage = app.screen_stack[0].query_one(f"#{cluster.stage_id}", Container)
        stage.display = True
        cluster.views.stage = stage
        view = cluster.views.get(cluster.views.current)
        if not view.is_attached:
            await stage.mount(view)
        if cluster is self.current:  # another key may have come meanwhile
            cluster.views.present(cluster.views.current)
            app.frames.draw()
