"""The page of one job: its plan, how it goes on each node, and what its ranks write. Part of the Jobs view."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ....present.spans import Line, Span, plain
from ....text import format
from ...models.list_kind import row_predicate
from ...models.page import PageItem
from ...models.row_context import RowInContext
from ...models.table_export import ExportTable
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.filter_bar import FilterBar
from ...widgets.line_view import LineView
from ...widgets.report import LineReport
from ...widgets.stream import Stream
from ..base import DetailProvider, NodePageRequested
from ..list_view import column, row_context
from ..paged_list import DetailPage
from .log import FIELDS, KIND, LINES, JobLog, LogFilter, LogLine
from .model import JobRow
from .page_model import page_lines, title_spans

#: From this width on the output stands beside the plan.
WIDE = 150
#: Below the plan the output has so much of the height at least.
_LEAST_OUTPUT = 0.5
_BESIDE = 3
_EDGE = Span("─ ", "rule")
_COLUMNS = (column(FIELDS["who"], 6, grow=10), column(FIELDS["text"], 30, grow=400))


class JobPage(DetailPage[str]):
    """`show_snapshot` shows the job named `key`, whose row the list has."""

    def __init__(self, *, id: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds, by which lines wait for their like."""
        super().__init__(id=id)
        self.clock = clock
        self._title, self._state = Bar(fill="─"), Bar(fill="─")
        self.plan = LineReport(id="job-plan")
        self.filter: FilterBar[RowInContext[LogLine]] = FilterBar(LINES, lambda field: (), id="line-filter")
        self.output: Stream[LogLine] = Stream(_COLUMNS, id="job-output")
        self._nothing = LineReport(classes="nothing")
        self._log: JobLog | None = None
        self._taken = -1  # version of the output up to which it is folded
        self._sieve = LogFilter(None)
        self._shown: tuple[object, ...] = ()
        self._frame: ScreenSnapshot | None = None

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
        self.key, self._shown = key, ()
        if self._log is not None and key is not None and self._log.job != key:
            self._log = None
            self.filter.clear()
        self.plan.show(())
        self.plan.scroll_home(animate=False, immediate=True)

    def initial_focus(self) -> LineView:
        return self.output if self.output.display else self.plan

    # -- drawing -----------------------------------------------------------------------------------------------------

    def show(self, row: JobRow | None, frame: ScreenSnapshot) -> None:
        """Show this frame; nothing is made anew where nothing of the job changed."""
        self._frame = frame
        if row is None:
            self._title.show((_EDGE, Span(self.key or "", "strong"), Span(" job not found ", "muted")))
            return
        basis = (row.key, row.started, row.ranks, frame.now // 1_000_000_000, self.size)
        if basis != self._shown:
            self._shown = basis
            self._write(row)
        self.set_class(row.started is None, "found")
        if row.started is not None:
            self._update_log(row.name, row.started.ordered.world_size, frame)

    def _write(self, row: JobRow) -> None:
        stop = (Span(" x", "key"), Span(" stop ", "muted")) if row.can_stop else ()
        self._title.show((_EDGE, *title_spans(row)), (*stop, Span(" Esc", "key"), Span(" back ─", "muted")))
        width = (self.size.width * 2 // 5 if self._is_wide else self.size.width) - _BESIDE
        lines = page_lines(row, max(20, width))
        self.plan.show(lines)
        if self._is_wide or row.started is None:
            self.plan.styles.height = "1fr"
        else:
            self.plan.styles.height = max(3, min(len(lines), int(self.size.height * (1 - _LEAST_OUTPUT))))

    def _update_log(self, job: str, writers: int, frame: ScreenSnapshot) -> None:
        if self._log is None:
            self._log, self._taken = JobLog(job, writers), -1
            self._sieve = self._new_sieve()
            self.output.begin()
        if frame.header.frozen_at is None:
            fresh = frame.written.since(self._taken)
            self._taken = frame.written.version
            self._log.add(fresh, self.clock())
        self._draw()

    def _draw(self) -> None:
        log = self._log
        if log is None:
            return
        passing_now = self._sieve.update(log)
        self.output.extend(passing_now, self._sieve.gone)
        if self.filter.wanted:
            self.filter.count(len(passing_now), len(log.lines), "lines")
        self.output.display = bool(passing_now)
        self._nothing.display = not passing_now
        if not passing_now:
            self._nothing.show(self._empty_text(bool(log.lines)))
        self._head(log)

    def _empty_text(self, any_line: bool) -> Sequence[Line]:
        if any_line:
            return (plain("No matching lines."), plain(""), plain("Esc clears the filter; / edits it.", "muted"))
        return (plain("no output yet", "muted"),)

    def _head(self, log: JobLog) -> None:
        left = (_EDGE, Span("OUTPUT", "accent"), Span(f" {format.count(log.end)} lines ", "muted"))
        if self.output.following:
            self._state.show(left, (Span(" following ", "ok"), Span("─", "rule")))
        else:
            below = f"{format.count(self.output.behind)} newer" if self.output.behind else "paused"
            right = (Span(f" {below}  ", "warning"), Span("G", "key"), Span(" follow ", "muted"), Span("─", "rule"))
            self._state.show(left, right)

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= WIDE

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "wide")
        self._shown = ()

    def show_note(self, text: str) -> None:
        """Say something between the lines."""
        if self._log is not None:
            self._log.add_note(text)

    # -- filter, cursor, what is taken away --------------------------------------------------------------------------

    def on_escape(self) -> bool:
        """Escape clears a filter that was kept, first."""
        if not self.filter.wanted:
            return False
        self.filter.clear()
        return True

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        event.stop()
        self._sieve = self._new_sieve()
        self.output.begin()
        self._draw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        event.stop()
        self.initial_focus().focus()

    def _new_sieve(self) -> LogFilter:
        context = row_context(self._frame) if self._frame is not None else None
        return LogFilter(row_predicate(self.filter.wanted, context) if context is not None else None)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if event.view is self.output and self._log is not None:
            self._head(self._log)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        thing = self.plan.selected
        if event.view is self.plan and isinstance(thing, PageItem) and thing.kind == "node":
            event.stop()
            self.post_message(NodePageRequested(str(thing.key)))

    def chosen_lines(self) -> Sequence[LogLine]:
        """The line under the cursor."""
        row = self.output.selected
        return [row] if row is not None and self.output.has_focus else []

    def export_tables(self) -> Sequence[ExportTable]:
        """The output, as it is filtered."""
        if self._log is None:
            return ()
        lines = list(self._sieve.update(self._log))
        what = f"Lines: {KIND.counted(len(lines))} of {format.count(self._log.end)} read"
        return [ExportTable(what, KIND, lines, list(FIELDS))] if lines else ()

    def detail_provider(self) -> DetailProvider | None:
        return None

    @property
    def selected_node(self) -> str | None:
        """The node of the line under the cursor."""
        thing = self.plan.selected
        at_plan = self.plan.has_focus and isinstance(thing, PageItem) and thing.kind == "node"
        return str(thing.key) if at_plan and isinstance(thing, PageItem) else None
