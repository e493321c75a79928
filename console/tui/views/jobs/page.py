"""The page of one job: its plan, its state on each node, and the output of its ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ....launch.state import JobStatus
from ....present.spans import Span, plain
from ....text import format
from ...models.detail import PageItem
from ...models.export_table import ExportTable
from ...models.grouping import RowInContext
from ...models.list_kind import row_predicate
from ...models.numbered_log import LazyRows, LogFilter
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.filter_bar import FilterBar
from ...widgets.line_view import LineReport, LineView
from ...widgets.record_grid import Stream
from ..base import BACK, EDGE, follow_spans
from ..list_view import column, row_context, unmatched_text
from ..paged_list import BESIDE, DetailPage
from .model import JobRow
from .page_model import FIELDS, KIND, LINES, JobLog, LogLine, page_lines, title_spans

#: Share of the height that the output below the plan has at least.
_LEAST_OUTPUT = 0.5
_COLUMNS = (column(FIELDS["who"], 6, grow=10), column(FIELDS["text"], 30, grow=400))


class JobPage(DetailPage[JobRow, str]):
    """One job: its plan and, beside or below it, its output. `clock` is in seconds; equal lines are folded by it."""

    wide_from: ClassVar[int] = 150
    gone_text = "job not found"

    def __init__(self, *, id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = LineReport(id="job-plan")
        super().__init__(self.plan, id=id)
        self.clock = clock
        self._state = Bar(fill="─")
        self.filter: FilterBar[RowInContext[LogLine]] = FilterBar(LINES, lambda field: (), id="line-filter")
        self.output: Stream[LogLine] = Stream(_COLUMNS, id="job-output")
        self._nothing = LineReport(classes="nothing")
        self._log: JobLog | None = None
        self._read = -1  # version of the output up to which it is in the log
        self._passing: LogFilter[LogLine] = LogFilter(None)

    def compose(self) -> ComposeResult:
        yield self._title
        with Container(id="job-body"):
            yield self.plan
            with Vertical(id="job-written"):
                yield self._state
                yield self.filter
                yield self._nothing
                yield self.output

    def set_key(self, key: str | None) -> None:
        """Show another job, or close the page; the log is kept for the same job."""
        super().set_key(key)
        if self._log is not None and key is not None and self._log.job != key:
            self._log = None
            self.filter.clear()

    def initial_focus(self) -> LineView:
        """The output if there is any, else the plan."""
        return self.output if self.output.display else self.plan

    def show_snapshot(self, frame: ScreenSnapshot, row: JobRow | None) -> None:
        """Draw this frame, and the output of a job that gconsole started."""
        super().show_snapshot(frame, row)
        if row is not None:
            self.set_class(row.started is None, "found")
            if row.started is not None:
                self._update_log(row.started, frame)

    def _basis(self, frame: ScreenSnapshot, row: JobRow) -> tuple[object, ...]:
        return (row.started, row.ranks, frame.second)

    def _write(self, frame: ScreenSnapshot, row: JobRow) -> None:
        stop = (Span(" x", "key"), Span(" stop ", "muted")) if row.can_stop else ()
        self._title.show((EDGE, *title_spans(row)), (*stop, *BACK))
        width = (self.size.width * 2 // 5 if self._is_wide else self.size.width) - BESIDE
        lines = page_lines(row, max(20, width))
        self.plan.show(lines)
        if self._is_wide or row.started is None:
            self.plan.styles.height = "1fr"
        else:
            self.plan.styles.height = max(3, min(len(lines), int(self.size.height * (1 - _LEAST_OUTPUT))))

    def _update_log(self, status: JobStatus, frame: ScreenSnapshot) -> None:
        if self._log is None:
            self._log, self._read = JobLog(status), -1
            self._passing = self._new_filter()
            self.output.begin()
        if frame.header.frozen_at is None:
            new = frame.written.since(self._read)
            self._read = frame.written.version
            self._log.add(new, self.clock())
        self._draw_output()

    def _draw_output(self) -> None:
        log = self._log
        if log is None:
            return
        numbers = self._passing.update(log)
        self.output.extend(LazyRows(numbers, log.row), self._passing.gone)
        if self.filter.wanted:
            self.filter.count(len(numbers), len(log.items), "lines")
        self.output.display, self._nothing.display = bool(numbers), not numbers
        if not numbers:
            self._nothing.show(unmatched_text("line") if log.items else (plain("no output yet", "muted"),))
        self._draw_state(log)

    def _draw_state(self, log: JobLog) -> None:
        left = (EDGE, Span("OUTPUT", "accent"), Span(f" {format.count(log.end)} lines ", "muted"))
        self._state.show(left, follow_spans(self.output))

    def show_note(self, text: str) -> None:
        """Add a message to the output."""
        if self._log is not None:
            self._log.add_note(text)

    def on_escape(self) -> bool:
        """Clear the filter."""
        if not self.filter.wanted:
            return False
        self.filter.clear()
        return True

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        event.stop()
        self._passing = self._new_filter()
        self.output.begin()
        self._draw_output()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        event.stop()
        self.initial_focus().focus()

    def _new_filter(self) -> LogFilter[LogLine]:
        if self._newest is None:
            return LogFilter(None)
        return LogFilter(row_predicate(self.filter.wanted, row_context(self._newest[0])))

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if event.view is self.output and self._log is not None:
            self._draw_state(self._log)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        if event.view is self.plan and (node := self._node_at_cursor()) is not None:
            event.stop()
            self.open_page(node)

    def _node_at_cursor(self) -> str | None:
        item = self.plan.selected
        return str(item.key) if isinstance(item, PageItem) and item.kind == "node" else None

    def chosen_lines(self) -> Sequence[LogLine]:
        """The line under the cursor, if the output has the focus."""
        row = self.output.selected
        return [row] if row is not None and self.output.has_focus else []

    def export_tables(self) -> Sequence[ExportTable]:
        """The output, as filtered."""
        if self._log is None:
            return ()
        lines = list(map(self._log.row, self._passing.update(self._log)))
        what = f"Lines: {KIND.counted(len(lines))} of {format.count(self._log.end)} read"
        return [ExportTable(what, KIND, lines, list(FIELDS))] if lines else ()

    @property
    def selected_node(self) -> str | None:
        """The node under the cursor, if the plan has the focus."""
        return self._node_at_cursor() if self.plan.has_focus else None
