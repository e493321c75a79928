"""7 Clocks: how far every node's clock is from the common one, and how well that is known; Enter opens one node's."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from ....present.clocks import ClockRow, head_spans
from ....present.spans import Line, Span, plain
from ...keymap.actions import Action, bindings, in_scope
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.line_view import LineView
from ...widgets.matrix_grid import MatrixGrid
from ...widgets.record_grid import GridColumn, RecordGrid
from ..list_view import column
from ..paged_list import PagedListView
from .columns import FIELDS, KIND
from .page import ClockPage
from .page_model import edge_grid, edge_text

#: In their order on the screen. At 80 cells: state, node, offset, bound, drift, method, service.
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
_EDGE = Span("─ ", "rule")


class ClocksView(PagedListView[ClockRow, str]):
    """The grid of nodes, or the matrix of edges in its place, or the page of one node over both."""

    scope = "clocks"
    kind, columns = KIND, COLUMNS
    BINDINGS = bindings(in_scope("clocks"))

    def __init__(self, *, id: str) -> None:
        self._page = ClockPage(id="clock-page")
        super().__init__(RecordGrid(COLUMNS, id="clock-grid"), self._page, id=id)  # type: ignore[arg-type]
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

    @property
    def actions(self) -> list[Action]:
        return [*in_scope("clocks"), *in_scope("list")]

    def initial_focus(self) -> LineView | RecordGrid:  # type: ignore[type-arg]
        return self._matrix if self._as_matrix and not self.is_paged else super().initial_focus()  # type: ignore[return-value]

    # -- the list ----------------------------------------------------------------------------------------------------

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.clocks,)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[ClockRow]:
        return frame.clocks.rows

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        return _NOTHING

    def _draw(self, frame: ScreenSnapshot) -> None:
        super()._draw(frame)
        seen = frame.clocks
        self._head.show((_EDGE, Span("CLOCKS", "accent"), *head_spans(seen)))
        self._matrix.show(edge_grid(seen))
        self._draw_edge()
        self._lay_out()

    def show_page(self, frame: ScreenSnapshot) -> None:
        self._page.show_snapshot(frame)

    @property
    def selected_node(self) -> str | None:
        return None if self._as_matrix and not self.is_paged else self.selected_key

    # -- the matrix --------------------------------------------------------------------------------------------------

    def action_matrix(self) -> None:
        """Show the matrix of edges in the place of the list, or the list again."""
        self._as_matrix = not self._as_matrix
        self.redraw()
        self._lay_out()
        self.screen.set_focus(self.initial_focus())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
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
            row, place = self._matrix.selected or (0, 0)
            self._edge.show((Span(f" {edge_text(self._frame.clocks, row, place)}", "text"),))

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self._draw_edge()

    def on_escape(self) -> bool:
        if self._as_matrix and not self.is_paged:
            self.action_matrix()
            return True
        return super().on_escape()
