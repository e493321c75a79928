"""7 Clocks: offset, drift and error bound of every node's clock; Enter opens the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import ComposeResult
from textual.widget import Widget

from ....present.clocks import ClockRow, head_spans, state_text
from ....present.spans import Line, Span, plain
from ....text.cells import clean
from ...keymap.actions import bindings, in_scope
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.line_view import LineReport, LineView
from ...widgets.matrix_grid import MatrixGrid
from ...widgets.plots import HistoryPlot
from ...widgets.record_grid import GridColumn, RecordGrid
from ..base import EDGE
from ..list_view import column
from ..paged_list import DetailPage, PagedListView
from .model import FIELDS, KIND, edge_grid, edge_text, fact_lines_of, offset_plot

#: In screen order. At 80 cells: state, node, offset, bound, drift, method, service.
COLUMNS: tuple[GridColumn[ClockRow], ...] = (
    column(FIELDS["state"], 12, leads=True, grow=4),
    column(FIELDS["node"], 9, leads=True, grow=12),
    column(FIELDS["offset"], 10, 1, right=True),
    column(FIELDS["bound"], 6, right=True),
    column(FIELDS["drift"], 9, 3, right=True),
    column(FIELDS["method"], 6, 4),
    column(FIELDS["service"], 16, 2, grow=14),
    column(FIELDS["rtt"], 6, 7, right=True),
    column(FIELDS["edges"], 5, 9, right=True),
    column(FIELDS["loss"], 6, 8, right=True),
    column(FIELDS["residual"], 12, 10, right=True),
    column(FIELDS["repeat"], 13, 12, right=True),
    column(FIELDS["age"], 6, 5, right=True),
    column(FIELDS["stamps"], 9, 13),
    column(FIELDS["cost"], 5, 11, right=True),
    column(FIELDS["warnings"], 12, 6, grow=30),
)
_NOTHING = (
    plain("No clock data yet."),
    plain(""),
    plain("Nodes probe each other's clocks over UDP while this view is open;", "muted"),
    plain("the first result takes a few seconds and needs at least two nodes.", "muted"),
    plain("Probing disabled? Set in hosts.toml:", "muted"),
    Line((Span("  [clock]"),)),
    Line((Span("  enabled = true"),)),
)
#: Lines. From this height on the page shows the curve of the offset.
TALL = 30


class ClocksView(PagedListView[ClockRow, str]):
    """The grid of nodes, or the matrix of edges in its place, or the page of one node."""

    scope = "clocks"
    kind, columns = KIND, COLUMNS
    BINDINGS = bindings(in_scope("clocks"))

    def __init__(self, *, id: str) -> None:
        grid: RecordGrid[Any] = RecordGrid(COLUMNS, id="clock-grid")
        super().__init__(grid, ClockPage(id="clock-page"), id=id)
        self._head = Bar(fill="─")
        self._matrix = MatrixGrid(id="clock-matrix")
        self._edge = Bar(id="clock-edge")
        self._as_matrix = False

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._matrix
        yield self._edge
        yield from super().compose()

    def on_mount(self) -> None:
        self._lay_out()

    def initial_focus(self) -> Widget:
        """The part that is shown."""
        return self._matrix if self._as_matrix and not self.is_paged else super().initial_focus()

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The clocks."""
        return (frame.clocks,)

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[ClockRow]:
        """One row per node with clock data."""
        return frame.clocks.rows

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """How clock data is measured, and how to enable it."""
        return _NOTHING

    def _draw(self, frame: ScreenSnapshot) -> None:
        super()._draw(frame)
        self._head.show((EDGE, Span("CLOCKS", "accent"), *head_spans(frame.clocks)))
        self._matrix.show(edge_grid(frame.clocks))
        self._draw_edge()
        self._lay_out()

    @property
    def selected_node(self) -> str | None:
        """The node of the page, or of the row under the cursor."""
        return None if self._as_matrix and not self.is_paged else self.selected_key

    def action_matrix(self) -> None:
        """Toggle between list and matrix of edges."""
        self._as_matrix = not self._as_matrix
        self.redraw()
        self._lay_out()
        self.screen.set_focus(self.initial_focus())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Pages have no matrix."""
        if action == "matrix":
            return not self.is_paged
        return super().check_action(action, parameters)

    def _lay_out(self) -> None:
        matrix = self._as_matrix and not self.is_paged
        for part in (self._matrix, self._edge):
            part.display = matrix
        if matrix:
            self._grid.display = self._nothing.display = False
        self._head.display = not self.is_paged

    def _set_key(self, key: str | None) -> None:
        super()._set_key(key)
        self._lay_out()

    def _draw_edge(self) -> None:
        if self._frame is not None and self._as_matrix:
            row, column = self._matrix.selected or (0, 0)
            self._edge.show((Span(f" {edge_text(self._frame.clocks, row, column)}", "text"),))

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self._draw_edge()

    def on_escape(self) -> bool:
        """Back from the matrix, or from a page."""
        if self._as_matrix and not self.is_paged:
            self.action_matrix()
            return True
        return super().on_escape()


class ClockPage(DetailPage[ClockRow, str]):
    """One node's clock: its facts, edges and past windows, below the curve of its offset."""

    gone_text = "no clock data any more"

    def __init__(self, *, id: str) -> None:
        self._curve = HistoryPlot(id="clock-curve")
        self._facts = LineReport(id="clock-facts")
        super().__init__(self._facts, id=id)

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._curve
        yield self._facts

    def _basis(self, frame: ScreenSnapshot, row: ClockRow) -> tuple[object, ...]:
        return (row,)

    def _write(self, frame: ScreenSnapshot, row: ClockRow) -> None:
        self._write_title(clean(row.node), Span(f" {state_text(row)} ", row.status))
        plot = offset_plot(row)
        self._curve.display = self.size.height >= TALL and plot.is_known and len(row.past) > 1
        self._curve.show(plot, row.version)
        self._facts.show(fact_lines_of(row, max(20, self.size.width - 3)))
