"""The frame clock: takes a snapshot of the store up to eight times a second and draws what changed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.driver import Driver

from ...core.store import Store
from ...core.wants import DIGESTED, EVERY_SAMPLE, Want
from ...monitor.finding_tracker import FindingTracker
from ...monitor.topology import TopologyFindings
from ..derived import ClockSkewFold, JobFold
from ..dialogs.dialog import DetailDialog
from ..models.trends import OverviewFold
from ..snapshot import ScreenSnapshot, SnapshotBuilder
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Frames per second, and on a slow terminal, or where frames take long, every n-th of them.
RATE_HZ, SLOW_EVERY = 8, 4
#: Share of a core that frames may take: what many nodes send changes something in each of them.
SHARE = 0.1
#: Paints whose median decides.
PAINTS = 5
#: The console is slow if a paint takes this many seconds, whoever needs the CPU. The terminal is slow if this many
#: writes are queued (a frame is 3 writes), and for so many frames after that.
SLOW_PAINT_S, SLOW_BACKLOG, QUICK_RUN = 0.2, 12, 16


class FrameController(Controller):
    """Owns the present `frame`. `builder_of` makes the snapshot builder of a store; None in `findings` is a replay."""

    def __init__(
        self, app: ConsoleApp, store: Store, builder_of: Callable[[Store], SnapshotBuilder],
        findings: FindingTracker | None,
    ) -> None:  # fmt: skip
        self._app, self._builder_of, self._findings = app, builder_of, findings
        self._rate = FrameRateLimiter()
        self._frozen: ScreenSnapshot | None = None
        self.use_store(store)

    def use_store(self, store: Store) -> None:
        """Show this store from now on."""
        self.builder = self._builder_of(store)
        self.job_fold = JobFold(store)
        self._clocks = ClockSkewFold(store)
        self._overview = OverviewFold(store)
        findings = self._findings
        self._topology = TopologyFindings(store, self.builder.topology, findings) if findings is not None else None
        self.frame = self.builder.build()

    @property
    def is_frozen(self) -> bool:
        """Whether the display is paused."""
        return self._frozen is not None

    @property
    def is_exiting(self) -> bool:
        """Whether the screens are gone while a timer, a cursor or a fold still wants to draw."""
        return not self._app.screen_stack

    @property
    def is_current(self) -> bool:
        """Whether everything on the screen is derived from the store's newest data."""
        frame, clocks, jobs = self.frame, self._clocks, self.job_fold
        clocks_are_current = (
            clocks.is_current(with_skew=self._shows_lateness)
            and frame.clocks is clocks.clocks
            and frame.skew is clocks.skew
        )
        is_folded = jobs.is_current and frame.jobs is jobs.value and self._app.captures.is_current
        overview_is_current = not self._shows_overview or (
            self._overview.is_current and frame.overview is self._overview.value
        )
        return is_folded and (self.is_frozen or (clocks_are_current and overview_is_current))

    @property
    def _shows_lateness(self) -> bool:
        return self._app.views.current == "skew"

    @property
    def _shows_overview(self) -> bool:
        return self._app.views.current == "overview"

    def tick(self, write_backlog: int) -> None:
        """Evaluate findings and draw, where due. `write_backlog`: writes that the terminal has not accepted yet."""
        if self.is_exiting:
            return
        self.evaluate_findings()
        if self._rate.is_due(write_backlog):
            began_s, began_cpu_s = time.perf_counter(), time.thread_time()
            self.draw()
            self._app.call_after_refresh(
                lambda: self._rate.painted(time.thread_time() - began_cpu_s, time.perf_counter() - began_s)
            )

    def evaluate_findings(self) -> None:
        """Evaluate findings where due."""
        if self._findings is not None and self._findings.is_due:
            self._app.run_worker(self._evaluate_findings(), name="findings")

    async def _evaluate_findings(self) -> None:
        """Also while the display is paused, and in every view."""
        if self._findings is not None and self._topology is not None:
            await self._findings.evaluate()
            await self._topology.evaluate()

    def draw(self) -> None:
        """Take a snapshot and show what changed; while paused only header and footer are redrawn."""
        if self.is_exiting:
            return
        captures, clocks = self._app.captures, self._clocks
        self.builder.jobs = self.job_fold.value
        frame = self.builder.build(self._frozen)
        if self._frozen is None:
            frame = replace(
                frame, hang=captures.diagnoses, crashes=captures.crashes, capturing=captures.runner.progress,
                clocks=clocks.clocks, skew=clocks.skew, overview=self._overview.value,
                header=replace(frame.header, clock_ns=clocks.clocks.worst_ns),
            )  # fmt: skip
        self.frame = frame
        if self._frozen is None:
            run = self._app.run_worker
            self.job_fold.refresh(frame, partial(run, name="fold jobs"))
            captures.update(partial(run, name="fold captures"))
            clocks.refresh(frame.now, partial(run, name="fold clocks"), with_skew=self._shows_lateness)
            if self._shows_overview:
                self._overview.refresh(frame, partial(run, name="fold trends"))
            view = self._app.views.view
            view.show_snapshot(frame)
            wanted = Want(view.wanted_nodes, DIGESTED, EVERY_SAMPLE)
            self._app.clusters.current.control.want("screen", wanted)
            self._app.jobs.stream_output(view.watched_job, frame)
            if isinstance(self._app.screen, DetailDialog):
                self._app.screen.show_snapshot(frame)
        self._app.draw_bars(frame)

    def action_freeze(self) -> None:
        """Pause the display, or resume it."""
        if self._frozen is not None:
            self._frozen = None
        else:
            self._frozen = self.frame = self.frame.frozen_copy()
            self._app.views.view.show_snapshot(self.frame)
        self.draw()


class FrameRateLimiter:
    """Decides at each tick whether to draw a frame, from the time that painting took."""

    def __init__(self) -> None:
        self._ticks = 0  # since the last frame
        self._slow_paints = 0  # that are still to come after the terminal was slow
        self._paints: deque[float] = deque(maxlen=PAINTS)

    @property
    def every(self) -> int:
        """Ticks from one frame to the next."""
        if self._slow_paints:
            return SLOW_EVERY
        taken_s = median(self._paints) if self._paints else 0.0
        return min(SLOW_EVERY, max(1, math.ceil(taken_s * RATE_HZ / SHARE)))

    def is_due(self, backlog: int) -> bool:
        """Whether to draw at this tick. `backlog`: writes that the terminal has not accepted yet."""
        self._ticks += 1
        if backlog >= SLOW_BACKLOG:
            self._slow_paints = QUICK_RUN
            return False
        if self._ticks < self.every:
            return False
        self._ticks = 0
        return True

    def painted(self, cpu_s: float, seconds: float) -> None:
        """Record that a frame took `cpu_s` of CPU, and `seconds`, from its start to its paint."""
        self._paints.append(seconds if seconds >= SLOW_PAINT_S else cpu_s)
        self._slow_paints = max(0, self._slow_paints - 1)


def write_backlog(driver: Driver | None) -> int:
    """Writes queued for the terminal, in a private attribute of Textual 8.2; 0 if not available.

    The driver of a browser counts its own.
    """
    backlog: int | None = getattr(driver, "backlog", None)
    if backlog is not None:
        return backlog
    writer = getattr(driver, "_writer_thread", None)
    queue = getattr(writer, "_queue", None)
    return queue.qsize() if queue is not None else 0
