"""4 Skew: lateness of every rank with error bars, consistent stragglers, and what they cost."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from ....present.skew import KINDS, SyncPointKind, head_spans, of_kind, table_lines, wait_lines
from ....present.spans import Span
from ...keymap.actions import bindings, in_scope
from ...models.detail import Detail
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.line_view import LineReport
from ...widgets.plots import Lanes
from ..base import EDGE, CaptureView, DetailProvider
from .model import NOTHING, as_text, job_spans, lanes, of_job, rank_of, rank_skew_detail

#: Cells. From this width on the table is beside the lanes.
WIDE = 130
#: Share of the height. Upper bound on the table below the lanes.
_MOST_TABLE = 0.5


class SkewView(CaptureView):
    """Lanes and, beside or below them, the table, at collectives, steps or captures. `_job` is by default all jobs."""

    scope = "skew"
    BINDINGS = bindings(in_scope("skew"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._head = Bar(fill="─")
        self._lanes = Lanes("rank", "late ms", "ms", id="skew-lanes")
        self._table = LineReport(id="skew-table")
        self._nothing = LineReport(id="skew-nothing")
        self._kind: SyncPointKind = "collectives"

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._progress
        yield self._nothing
        with Container(id="skew-body"):
            yield self._lanes
            yield self._table

    def initial_focus(self) -> Widget:
        """The lanes, or the text in their place."""
        return self._lanes if self._lanes.lanes else self._nothing

    def _basis(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.skew, self._kind, self._job, self.size)

    def _write(self, frame: ScreenSnapshot) -> None:
        seen = of_job(frame.skew, self._job)
        skews = of_kind(seen, self._kind)
        self._head.show((EDGE, Span("SKEW", "accent"), *job_spans(self._job), *head_spans(seen, self._kind)))
        self.set_class(not skews, "empty")
        waits = () if self._kind == "captures" else wait_lines(seen.waits, max(20, self.size.width - 3))
        self._nothing.show((*NOTHING[self._kind], *waits))
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

    def on_escape(self) -> bool:
        """Cancel the running capture, or go back from one job to all."""
        if self._progress.display:
            self._progress.action_cancel()
        elif self._job:
            self.focus_job("")
        else:
            return False
        return True

    def action_mode(self) -> None:
        """Show the next of: collectives, steps, captures."""
        self._kind = KINDS[(KINDS.index(self._kind) + 1) % len(KINDS)]
        self._show_again()

    def action_why(self) -> None:
        """Sample all ranks and show what the slow one does and its peers do not."""
        self.console.captures.explain()

    def action_copy(self) -> None:
        """Copy the view as text."""
        if self._frame is not None:
            self.console.clip.copy(as_text(of_job(self._frame.skew, self._job), self._kind), "skew")

    def detail_provider(self) -> DetailProvider | None:
        """Details of the rank under the cursor."""
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
        """The node of the rank under the cursor."""
        if self._frame is None or self._lanes.selected is None:
            return None
        rank = rank_of(self._frame.skew, self._kind, self._lanes.selected)
        return rank.node if rank is not None else None
