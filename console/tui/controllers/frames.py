"""The frame clock: takes a snapshot of the store up to eight times a second and draws what changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from textual.screen import Screen

from ...core.store import Store
from ...monitor.finding_tracker import FindingTracker
from ...monitor.topology import TopologyFindings
from ..derived import ClockSkewFold, JobFold
from ..dialogs.dialog import DetailDialog
from ..frame_rate import FrameRateLimiter
from ..snapshot import ScreenSnapshot, SnapshotBuilder
from .capture import CaptureController
from .controller import AppHost, Controller
from .jobs import JobController
from .view_switcher import ViewSwitcher


class FrameHost(AppHost, Protocol):
    """The app, as far as drawing needs it."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen or dialog on top."""
        ...

    @property
    def screen_stack(self) -> Any:
        """All screens; empty while the app exits."""
        ...

    @property
    def views(self) -> ViewSwitcher:
        """The views."""
        ...

    @property
    def captures(self) -> CaptureController:
        """The captures and their verdicts."""
        ...

    @property
    def jobs(self) -> JobController:
        """The jobs that gconsole started."""
        ...

    def call_after_refresh(self, callback: Callable[[], Any]) -> Any:
        """Call after the next paint."""
        ...

    def draw_bars(self, frame: ScreenSnapshot) -> None:
        """Draw header and footer."""
        ...


class FrameController(Controller):
    """Owns the present `frame`. `builder_of` makes the snapshot builder of a store; None in `findings` is a replay."""

    def __init__(
        self,
        app: FrameHost,
        store: Store,
        builder_of: Callable[[Store], SnapshotBuilder],
        findings: FindingTracker | None,
    ) -> None:
        self._app, self._builder_of, self._findings = app, builder_of, findings
        self._rate = FrameRateLimiter()
        self._frozen: ScreenSnapshot | None = None
        self.use_store(store)

    def use_store(self, store: Store) -> None:
        """Show this store from now on."""
        self.builder = self._builder_of(store)
        self.job_fold = JobFold(store)
        self._clocks = ClockSkewFold(store)
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
        """Whether every view is mounted and everything on the screen is derived from the store's newest data."""
        frame, clocks, jobs = self.frame, self._clocks, self.job_fold
        clocks_are_current = (
            clocks.is_current(with_skew=self._shows_lateness)
            and frame.clocks is clocks.clocks
            and frame.skew is clocks.skew
        )
        is_folded = jobs.is_current and frame.jobs is jobs.value and self._app.captures.is_current
        return self._app.views.is_complete and is_folded and (self.is_frozen or clocks_are_current)

    @property
    def _shows_lateness(self) -> bool:
        return self._app.views.current == "skew"

    def tick(self, write_backlog: int) -> None:
        """Evaluate findings and draw, where due. `write_backlog`: writes that the terminal has not accepted yet."""
        if self.is_exiting:
            return
        if self._findings is not None and self._findings.is_due:
            self._app.run_worker(self._evaluate_findings(), name="findings")
        if self._rate.is_due(write_backlog):
            began = time.perf_counter()
            self.draw()
            self._app.call_after_refresh(lambda: self._rate.painted(time.perf_counter() - began))

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
                frame, hang=captures.diagnoses, capturing=captures.runner.progress, clocks=clocks.clocks,
                skew=clocks.skew, header=replace(frame.header, clock_ns=clocks.clocks.worst_ns),
            )  # fmt: skip
        self.frame = frame
        if self._frozen is None:
            run = self._app.run_worker
            self.job_fold.refresh(frame, partial(run, name="fold jobs"))
            captures.update(partial(run, name="fold captures"))
            clocks.refresh(frame.now, partial(run, name="fold clocks"), with_skew=self._shows_lateness)
            view = self._app.views.view
            view.show_snapshot(frame)
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
            for view in self._app.views.opened.values():
                if view.is_mounted:
                    view.show_snapshot(self.frame)  # all views show the same instant, whichever is opened later
        self.draw()
