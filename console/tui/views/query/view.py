"""9 Query: SQL over every record, with its answer as a grid or drawn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Final, cast

from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from ....present.spans import Line, Span, plain
from ....text import format
from ....text.cells import clean
from ...base_app import BaseApp
from ...keymap.actions import bindings, in_scope
from ...models import table_export
from ...models.detail import Detail, Fact
from ...models.list_kind import Arrangement
from ...models.table_export import ExportTable
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.record_grid import GridColumn, RecordGrid
from ...widgets.report import LineReport
from ...widgets.sql_editor import SqlEditor
from ..base import DetailProvider, View
from .model import QueryResult, ResultFormat, ResultRow, cell, chart_lines

#: What stands there before the first question.
_EXAMPLES: Final = (
    "DESCRIBE", "DESCRIBE gpu", "SELECT * FROM ranks_now",
    "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank",
    "SELECT count, ranks, stack FROM stack_groups", "SELECT * FROM collective_waits",
)  # fmt: skip


class QueryRequested(Message):
    """Somebody wants this answered; the app does it and tells `view`."""

    def __init__(self, view: QueryView, sql: str) -> None:
        super().__init__()
        self.view, self.sql = view, sql


class NamesRequested(Message):
    """The editor wants to know what can be completed."""

    def __init__(self, view: QueryView) -> None:
        super().__init__()
        self.view = view


class QueryCancelRequested(Message):
    """Somebody gives up the question under way."""


class QueryView(View):
    """The editor, a line that tells how the question went, and the answer."""

    scope = "query"
    BINDINGS = bindings([*in_scope("query"), *(key for key in in_scope("lines") if key.call in ("left", "right"))])

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._editor = SqlEditor(id="sql")
        self._state = Bar(fill="─")
        self._grid: RecordGrid[ResultRow] = RecordGrid((), id="answer")
        self._drawing = LineReport(id="answer-drawing")
        self._answer: QueryResult | None = None
        self._started_at: float | None = None  # while a question is under way
        self._shown_s = -1
        self._how: ResultFormat = "table"
        self._first = 0  # the leftmost column of the grid
        self._kept: tuple[str, tuple[str, ...]] = ("", ())
        self._has_names = False

    def compose(self) -> ComposeResult:
        yield self._editor
        yield self._state
        yield self._grid
        yield self._drawing

    def on_mount(self) -> None:
        self._put_kept()
        self._show()

    # -- the frame ---------------------------------------------------------------------------------------------------

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        if not self._has_names and self.is_mounted:
            self._has_names = True
            self.post_message(NamesRequested(self))
        if self._started_at is not None and int(time.monotonic() - self._started_at) != self._shown_s:
            self._head()

    def initial_focus(self) -> Widget | None:
        return self._drawing if self._grid.has_class("gone") else self._grid

    def on_escape(self) -> bool:
        if self._started_at is not None:
            self.post_message(QueryCancelRequested())
            return True
        return False

    @property
    def arrangement(self) -> Arrangement:
        text = self._editor.line.text.strip() if self.is_mounted else self._kept[0]
        return Arrangement(filter=text, earlier=tuple(self._editor.history) or self._kept[1])

    def restore(self, arrangement: Arrangement) -> None:
        self._kept = (arrangement.filter, arrangement.earlier)
        if self.is_mounted:
            self._put_kept()

    def _put_kept(self) -> None:
        self._editor.history = list(self._kept[1])
        self._editor.put(self._kept[0])

    # -- the question ------------------------------------------------------------------------------------------------

    def action_edit(self) -> None:
        """Type a question."""
        self._editor.open()

    def set_completion_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """What can be completed from now on."""
        self._editor.set_names(names)

    def on_sql_editor_submitted(self, event: SqlEditor.Submitted) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()
            self._head()
            self.post_message(QueryRequested(self, event.sql))

    def on_sql_editor_left(self, event: SqlEditor.Left) -> None:
        if self._started_at is not None:
            self.post_message(QueryCancelRequested())
        elif home := self.initial_focus():
            home.focus()

    def show_result(self, answer: QueryResult | None) -> None:
        """Show this; None is a question that was given up, and then what stood there stays."""
        self._started_at, self._shown_s = None, -1
        if answer is None:
            self.notify("cancelled", timeout=2, markup=False)
            self._head()
            return
        self._answer, self._first = answer, 0
        if self._how not in answer.drawings():
            self._how = "table"
        self._show()
        if not answer.error and answer.rows and (home := self.initial_focus()):
            home.focus()

    # -- the answer --------------------------------------------------------------------------------------------------

    def action_plot(self) -> None:
        """Show the answer in the next way there is."""
        ways = self._answer.drawings() if self._answer else ("table",)
        if len(ways) == 1:
            self.notify("nothing to plot: no numeric column", timeout=3, markup=False)
            return
        self._how = ways[(ways.index(self._how) + 1) % len(ways)]
        self._show()
        if home := self.initial_focus():
            home.focus()

    def action_left(self) -> None:
        self._move(-1)

    def action_right(self) -> None:
        self._move(1)

    def _move(self, by: int) -> None:
        most = len(self._answer.columns) - 1 if self._answer else 0
        self._first = max(0, min(most, self._first + by))
        self._show()

    def on_resize(self) -> None:
        if self._how != "table" or (self._answer is not None and self._answer.error):
            self.call_after_refresh(self._show)

    def _show(self) -> None:
        answer = self._answer
        is_table = answer is not None and not answer.error and self._how == "table" and bool(answer.columns)
        self._grid.set_class(not is_table, "gone")
        self._drawing.set_class(is_table, "gone")
        if answer is None:
            self._drawing.show(_examples())
        elif answer.error:
            self._drawing.show(_mistake(answer.error, max(20, self.size.width - 6)))
        elif is_table:
            self._grid.show(())
            self._grid.set_columns(_columns(answer, self._first))
            self._grid.show(answer.rows)
        else:
            size = self._drawing.scrollable_content_region.size if not self._drawing.has_class("gone") else self.size
            self._drawing.show(
                chart_lines(answer, self._how, max(20, size.width or self.size.width), max(6, size.height))
            )
        self._head()

    def _head(self) -> None:
        left: tuple[Span, ...] = (Span("─ ", "rule"), Span("RESULT", "accent"), Span(" "))
        right: tuple[Span, ...] = ()
        if self._started_at is not None:
            self._shown_s = int(time.monotonic() - self._started_at)
            left = (*left, Span(f"running … {self._shown_s} s ", "warning"))
            right = (Span(" Esc", "key"), Span(" cancel ", "muted"), Span("─", "rule"))
        elif self._answer is not None and self._answer.error:
            left = (*left, Span("error ", "failed"))
        elif self._answer is not None:
            left = (*left, Span(f"{self._answer.head()} ", "muted"))
            if self._first:
                left = (*left, Span(f"from column {self._first + 1} of {len(self._answer.columns)} ", "muted"))
            right = (Span(f" {self._how} ", "muted"), Span("─", "rule"))
        self._state.show(left, right)

    # -- what leaves -------------------------------------------------------------------------------------------------

    def export_tables(self) -> Sequence[ExportTable]:
        return self._answer.export_tables(self._grid.selected) if self._answer else ()

    def action_copy(self) -> None:
        """The row under the cursor as text."""
        row, answer = self._grid.selected, self._answer
        if row is not None and answer is not None:
            cast(BaseApp, self.app).copy(table_export.rows_as_text(answer.kind, [row], answer.columns), "1 row")

    def action_copy_json(self) -> None:
        """The row under the cursor as JSON."""
        row, answer = self._grid.selected, self._answer
        if row is not None and answer is not None:
            cast(BaseApp, self.app).copy(table_export.rows_as_json(answer.kind, [row]), "1 row")

    def detail_provider(self) -> DetailProvider | None:
        row, answer = self._grid.selected, self._answer
        if row is None or answer is None or self._how != "table":
            return None
        return lambda frame: _row_detail(answer, row)


def _row_detail(answer: QueryResult, row: ResultRow) -> Detail:
    """Everything in one row, each text in full."""
    facts = tuple(Fact(answer.title(index), cell(value)) for index, value in enumerate(row.values))
    return Detail(f"row {format.count(row.key + 1)}", "ok", facts)


def _mistake(text: str, width: int) -> list[Line]:
    """What is wrong, its first line loud; the place that is pointed at stays under its word."""
    lines = [part for line in text.splitlines() for part in (wrap(clean(line), width) if line.strip("^ ") else [line])]
    return [plain(f"  {line}", "text" if index else "failed") for index, line in enumerate(lines)]


def _examples() -> list[Line]:
    invitation = Line(
        (Span("  "), Span("/", "key"), Span(" edit · SQL over all records; one table per record type", "muted"))
    )
    return [invitation, Line(), *(plain(f"    {sql}", "muted") for sql in _EXAMPLES)]


def _columns(answer: QueryResult, first: int) -> tuple[GridColumn[ResultRow], ...]:
    """The columns from `first` on; the last go where there is no room."""
    return tuple(_column(answer, index, drop=index - first) for index in range(first, len(answer.columns)))


def _column(answer: QueryResult, index: int, drop: int) -> GridColumn[ResultRow]:
    is_last = index == len(answer.columns) - 1

    def span(row: ResultRow) -> Span:
        value = row.values[index]
        return Span(cell(value), "unknown" if value is None else "text")

    return GridColumn(
        f"{index}:{answer.columns[index]}", answer.title(index), answer.width_of(index), span, drop=drop,
        grow=200 if is_last else 0, align="right" if index in answer.numeric else "left",
    )  # fmt: skip
