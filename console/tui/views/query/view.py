"""9 Query: SQL over all records, with the result as a grid or a chart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Final

from textual.app import ComposeResult
from textual.widget import Widget

from ....present.spans import Line, Span, plain
from ....text import format
from ....text.cells import clean
from ...keymap.actions import bindings, in_scope
from ...models.detail import Detail, Fact
from ...models.export_table import ExportTable, rows_as_json, rows_as_text
from ...models.list_kind import Arrangement
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.line_view import LineReport
from ...widgets.record_grid import GridColumn, RecordGrid
from ...widgets.sql_editor import SqlEditor
from ..base import EDGE, DetailProvider, View
from .model import QueryResult, ResultFormat, ResultRow, cell, chart_lines

#: Queries shown before the first one is run.
_EXAMPLES: Final = (
    "DESCRIBE", "DESCRIBE gpu", "SELECT * FROM ranks_now",
    "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank",
    "SELECT count, ranks, stack FROM stack_groups", "SELECT * FROM collective_waits",
)  # fmt: skip


class QueryView(View):
    """The editor, a title with the state of the query, and the result."""

    scope = "query"
    BINDINGS = bindings([*in_scope("query"), *(key for key in in_scope("lines") if key.call in ("left", "right"))])

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._editor = SqlEditor(id="sql")
        self._state = Bar(fill="─")
        self._grid: RecordGrid[ResultRow] = RecordGrid((), id="answer")
        self._drawing = LineReport(id="answer-drawing")
        self._result: QueryResult | None = None
        self._started_at: float | None = None  # time.monotonic(); None while no query runs
        self._shown_s = -1
        self._format: ResultFormat = "table"
        self._first = 0  # the leftmost column of the grid
        self._saved: tuple[str, tuple[str, ...]] = ("", ())  # text and history, until the editor is mounted
        self._has_names = False

    def compose(self) -> ComposeResult:
        yield self._editor
        yield self._state
        yield self._grid
        yield self._drawing

    def on_mount(self) -> None:
        self._put_saved()
        self._show()

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Update the duration of a running query; request names for completion once."""
        if not self._has_names and self.is_mounted:
            self._has_names = True
            self.console.queries.complete_names(self)
        if self._started_at is not None and int(time.monotonic() - self._started_at) != self._shown_s:
            self._head()

    def initial_focus(self) -> Widget:
        """The grid or the chart."""
        return self._drawing if self._grid.has_class("gone") else self._grid

    def on_escape(self) -> bool:
        """Cancel the running query."""
        if self._started_at is not None:
            self.console.queries.client.cancel()
            return True
        return False

    @property
    def arrangement(self) -> Arrangement:
        """The query and the history."""
        text = self._editor.line.text.strip() if self.is_mounted else self._saved[0]
        return Arrangement(filter=text, earlier=tuple(self._editor.history) or self._saved[1])

    def restore(self, arrangement: Arrangement) -> None:
        """Apply a saved arrangement."""
        self._saved = (arrangement.filter, arrangement.earlier)
        if self.is_mounted:
            self._put_saved()

    def _put_saved(self) -> None:
        self._editor.history = list(self._saved[1])
        self._editor.put(self._saved[0])

    def action_edit(self) -> None:
        """Edit the query."""
        self._editor.open()

    def set_completion_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Set the tables and their columns for completion."""
        self._editor.set_names(names)

    def on_sql_editor_submitted(self, event: SqlEditor.Submitted) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()
            self._head()
            self.console.queries.run(self, event.sql)

    def on_sql_editor_left(self, event: SqlEditor.Left) -> None:
        if self._started_at is not None:
            self.console.queries.client.cancel()
        else:
            self.initial_focus().focus()

    def show_result(self, result: QueryResult | None) -> None:
        """Show a result; None for a cancelled query, which keeps the previous one."""
        self._started_at, self._shown_s = None, -1
        if result is None:
            self.notify("cancelled", timeout=2, markup=False)
            self._head()
            return
        self._result, self._first = result, 0
        if self._format not in result.drawings():
            self._format = "table"
        self._show()
        if not result.error and result.rows:
            self.initial_focus().focus()

    def action_plot(self) -> None:
        """Show the result in the next format."""
        formats = self._result.drawings() if self._result else ("table",)
        if len(formats) == 1:
            self.notify("nothing to plot: no numeric column", timeout=3, markup=False)
            return
        self._format = formats[(formats.index(self._format) + 1) % len(formats)]
        self._show()
        self.initial_focus().focus()

    def action_left(self) -> None:
        self._move(-1)

    def action_right(self) -> None:
        self._move(1)

    def _move(self, by: int) -> None:
        most = len(self._result.columns) - 1 if self._result else 0
        self._first = max(0, min(most, self._first + by))
        self._show()

    def on_resize(self) -> None:
        if self._format != "table" or (self._result is not None and self._result.error):
            self.call_after_refresh(self._show)

    def _show(self) -> None:
        result = self._result
        is_table = result is not None and not result.error and self._format == "table" and bool(result.columns)
        self._grid.set_class(not is_table, "gone")
        self._drawing.set_class(is_table, "gone")
        if result is None:
            self._drawing.show(_examples())
        elif result.error:
            self._drawing.show(_error_lines(result.error, max(20, self.size.width - 6)))
        elif is_table:
            self._grid.show(())
            self._grid.set_columns(_columns(result, self._first))
            self._grid.show(result.rows)
        else:
            size = self._drawing.scrollable_content_region.size if not self._drawing.has_class("gone") else self.size
            self._drawing.show(
                chart_lines(result, self._format, max(20, size.width or self.size.width), max(6, size.height))
            )
        self._head()

    def _head(self) -> None:
        left: tuple[Span, ...] = (EDGE, Span("RESULT", "accent"), Span(" "))
        right: tuple[Span, ...] = ()
        if self._started_at is not None:
            self._shown_s = int(time.monotonic() - self._started_at)
            left = (*left, Span(f"running … {self._shown_s} s ", "warning"))
            right = (Span(" Esc", "key"), Span(" cancel ", "muted"), Span("─", "rule"))
        elif self._result is not None and self._result.error:
            left = (*left, Span("error ", "failed"))
        elif self._result is not None:
            left = (*left, Span(f"{self._result.head()} ", "muted"))
            if self._first:
                left = (*left, Span(f"from column {self._first + 1} of {len(self._result.columns)} ", "muted"))
            right = (Span(f" {self._format} ", "muted"), Span("─", "rule"))
        self._state.show(left, right)

    def export_tables(self) -> Sequence[ExportTable]:
        """The result, and the row under the cursor."""
        return self._result.export_tables(self._grid.selected) if self._result else ()

    def action_copy(self) -> None:
        """Copy the row under the cursor as text."""
        row, result = self._grid.selected, self._result
        if row is not None and result is not None:
            self.console.clip.copy(rows_as_text(result.kind, [row], result.columns), "1 row")

    def action_copy_json(self) -> None:
        """Copy the row under the cursor as JSON."""
        row, result = self._grid.selected, self._result
        if row is not None and result is not None:
            self.console.clip.copy(rows_as_json(result.kind, [row]), "1 row")

    def detail_provider(self) -> DetailProvider | None:
        """The row under the cursor, each text in full."""
        row, result = self._grid.selected, self._result
        if row is None or result is None or self._format != "table":
            return None
        return lambda frame: _row_detail(result, row)


def _row_detail(result: QueryResult, row: ResultRow) -> Detail:
    """One row, each text in full."""
    facts = tuple(Fact(result.title(index), cell(value)) for index, value in enumerate(row.values))
    return Detail(f"row {format.count(row.key + 1)}", "ok", facts)


def _error_lines(text: str, width: int) -> list[Line]:
    """An error message; the line with ^ stays below the word it marks."""
    lines = [part for line in text.splitlines() for part in (wrap(clean(line), width) if line.strip("^ ") else [line])]
    return [plain(f"  {line}", "text" if index else "failed") for index, line in enumerate(lines)]


def _examples() -> list[Line]:
    invitation = Line(
        (Span("  "), Span("/", "key"), Span(" edit · SQL over all records; one table per record type", "muted"))
    )
    return [invitation, Line(), *(plain(f"    {sql}", "muted") for sql in _EXAMPLES)]


def _columns(result: QueryResult, first: int) -> tuple[GridColumn[ResultRow], ...]:
    """The columns from `first` on; those that do not fit are dropped from the end."""
    return tuple(_column(result, index, drop=index - first) for index in range(first, len(result.columns)))


def _column(result: QueryResult, index: int, drop: int) -> GridColumn[ResultRow]:
    is_last = index == len(result.columns) - 1

    def span(row: ResultRow) -> Span:
        value = row.values[index]
        return Span(cell(value), "unknown" if value is None else "text")

    return GridColumn(
        f"{index}:{result.columns[index]}", result.title(index), result.width_of(index), span, drop=drop,
        grow=200 if is_last else 0, align="right" if index in result.numeric else "left",
    )  # fmt: skip
