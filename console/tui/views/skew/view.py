"""4 Skew: who arrives late, lane by lane with its error bar; who is last again and again, and what that costs."""

from __future__ import annotations

from typing import cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from ....present.skew import KINDS, SyncPointKind, head_spans, of_kind, table_lines
from ....present.spans import Span
from ...base_app import BaseApp
from ...keymap.actions import bindings, in_scope
from ...models.detail import Detail
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.lanes import Lanes
from ...widgets.progress import Progress
from ...widgets.report import LineReport
from ..base import CancelRequested, DetailProvider, View
from .model import NOTHING, as_text, job_spans, lanes, of_job, rank_of, rank_skew_detail

#: From this width on the table stands beside the lanes.
WIDE = 130
#: Below the lanes the table takes so much of the height at most.
_MOST_TABLE = 0.5
_EDGE = Span("─ ", "rule")


class SkewView(View):
    """Lanes and, beside or below them, the table. `m` looks at other meetings."""

    scope = "skew"
    BINDINGS = bindings(in_scope("skew"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._head = Bar(fill="─")
        self._progress = Progress(id="skew-progress")
        self._lanes = Lanes("rank", "late ms", "ms", id="skew-lanes")
        self._table = LineReport(id="skew-table")
        self._nothing = LineReport(id="skew-nothing")
        self._kind: SyncPointKind = "collectives"
        self._job = ""  # only this one is shown; empty: every job
        self._frame: ScreenSnapshot | None = None
        self._shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._progress
        yield self._nothing
        with Container(id="skew-body"):
            yield self._lanes
            yield self._table

    def on_mount(self) -> None:
        self._progress.display = False

    def initial_focus(self) -> Widget:
        return self._lanes if self._lanes.lanes else self._nothing

    # -- drawing -----------------------------------------------------------------------------------------------------

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        self._frame = frame
        self._show_progress(frame)
        basis = (frame.skew, self._kind, self._job, self.size)
        if basis != self._shown:
            self._shown = basis
            self._write(frame)

    def _show_progress(self, frame: ScreenSnapshot) -> None:
        now = frame.capturing
        if now is None and self._progress.has_focus:
            self.screen.set_focus(self.initial_focus())
        self._progress.display = now is not None
        if now is not None:
            self._progress.show(now.verb, now.read, now.ranks, "ranks", round(now.elapsed_s, 1))

    def _write(self, frame: ScreenSnapshot) -> None:
        seen = of_job(frame.skew, self._job)
        skews = of_kind(seen, self._kind)
        self._head.show((_EDGE, Span("SKEW", "accent"), *job_spans(self._job), *head_spans(seen, self._kind)))
        self.set_class(not skews, "empty")
        self._nothing.show(NOTHING[self._kind])
        drawn = lanes(skews)
        self._lanes.show(drawn)
        width = (self.size.width // 2 if self._is_wide else self.size.width) - 3
        lines = table_lines(seen, self._kind, max(20, width))
        self._table.show(lines)
        if self._is_wide:
            self._table.styles.height = "1fr"
        else:
            room = max(3, int(self.size.height * _MOST_TABLE), self.size.height - len(drawn) - 3)
            self._table.styles.height = min(len(lines), room)
        if self._nothing.has_focus or self._lanes.has_focus:
            self.screen.set_focus(self.initial_focus())

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= WIDE

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "wide")
        if self._frame is not None:
            self.call_after_refresh(self.show_snapshot, self._frame)

    def focus_job(self, job: str) -> None:
        self._job = job
        if self._frame is not None:
            self.show_snapshot(self._frame)

    # -- acting ------------------------------------------------------------------------------------------------------

    def on_progress_cancelled(self, event: Progress.Cancelled) -> None:
        event.stop()
        self.post_message(CancelRequested())

    def on_escape(self) -> bool:
        """Escape gives up the capture that is under way, first; then it leads from one job back to all of them."""
        if self._progress.display:
            self._progress.action_cancel()
        elif self._job:
            self.focus_job("")
        else:
            return False
        return True

    def action_meetings(self) -> None:
        """The next kind of meeting: collectives, steps, captures."""
        self._kind = KINDS[(KINDS.index(self._kind) + 1) % len(KINDS)]
        if self._frame is not None:
            self.show_snapshot(self._frame)

    def action_copy(self) -> None:
        """Everything here, as text."""
        if self._frame is not None:
            cast(BaseApp, self.app).copy(as_text(of_job(self._frame.skew, self._job), self._kind), "skew")

    def detail_provider(self) -> DetailProvider | None:
        key, kind = (self._table if self._table.has_focus else self._lanes).selected, self._kind
        if key is None:
            return None

        def detail(frame: ScreenSnapshot) -> Detail | None:
            seen = of_job(frame.skew, self._job)
            rank = rank_of(seen, kind, key)
            return rank_skew_detail(rank, seen, kind) if rank is not None else None

        return detail

    @property
    def selected_node(self) -> str | None:
        if self._frame is None or self._lanes.selected is None:
            return None
        rank = rank_of(self._frame.skew, self._kind, self._lanes.selected)
        return rank.node if rank is not None else None
