"""n Nodes: a row a node; Enter opens the page of one, with everything known of it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widget import Widget

from ..keys import bindings, in_scope
from ..models.jobs import Jobs
from ..models.noderows import FIELDS, NodeRow, node_rows, sorted_rows
from ..models.nodes import FleetSummary
from ..models.ordering import SteadyOrder
from ..models.sheets import Sheet
from ..models.tables import counted, node_sheet
from ..watch import Frame
from ..widgets.line_view import LineView
from ..widgets.record_grid import Column, RecordGrid
from .base import Teller, View
from .node_page import NodePage


def _column(
    key: str, width: int, drop: int = 0, *, grow: int = 0, right: bool = False, leads: bool = False
) -> Column[NodeRow]:
    field = FIELDS[key]
    return Column(field.key, field.title, width, field.span, drop, grow, "right" if right else "left", leads)


#: In their order on the screen. At 80 cells: state, node, CPU, memory, I/O stall, network, GPUs, ranks, agent.
COLUMNS: tuple[Column[NodeRow], ...] = (
    _column("state", 12, leads=True, grow=3),
    _column("node", 9, leads=True, grow=12),
    _column("cpu", 5, 1, right=True),
    _column("mem", 5, 2, right=True),
    _column("cpu_stall", 9, 14, right=True),
    _column("mem_stall", 9, 15, right=True),
    _column("io_stall", 9, 7, right=True),
    _column("read", 6, 10, right=True),
    _column("write", 7, 11, right=True),
    _column("rx", 5, 6, right=True),
    _column("tx", 5, 6, right=True),
    _column("gpus", 4, 3, right=True),
    _column("ranks", 5, 4, right=True),
    _column("agent", 7, 5, right=True),
    _column("agent_rss", 5, 12, right=True),
    _column("hostname", 10, 17, grow=12),
    _column("kernel", 12, 13, grow=10),
    _column("python", 7, 16),
    _column("tags", 6, 9, grow=14),
    _column("reason", 12, 8, grow=40),
)


class Nodes(View):
    """The grid, or the page of one node over it."""

    scope = "nodes"
    BINDINGS = bindings(in_scope("nodes"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._grid: RecordGrid[NodeRow] = RecordGrid(COLUMNS, id="node-grid")
        self._page = NodePage(id="node-page")
        self._page.display = False
        self._visiting = False  # the page was opened from another view: the way out leads there
        self._sort, self._reverse = "node", False
        self._order: SteadyOrder[NodeRow] = SteadyOrder(lambda: self._frame.now / 1e9 if self._frame else 0.0)
        self._shown: tuple[FleetSummary, Jobs] | None = None  # what the rows were made of
        self._frame: Frame | None = None

    def compose(self) -> ComposeResult:
        yield self._grid
        yield self._page

    def home(self) -> Widget:
        return self._page.facts if self._is_paged else self._grid

    def look(self, frame: Frame) -> None:
        if self._frame is not None and frame.now < self._frame.now:
            self._order.forget()  # a replay went back
        self._frame = frame
        if self._is_paged:
            self._page.look(frame)
        else:
            self._look_grid(frame)

    # -- the grid ----------------------------------------------------------------------------------------------------

    def _look_grid(self, frame: Frame) -> None:
        if self._shown is not None and self._shown[0] is frame.fleet and self._shown[1] is frame.jobs:
            return
        self._shown = (frame.fleet, frame.jobs)
        rows = node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)
        rows = sorted_rows(rows, self._sort, self._reverse, self._order)
        self._grid.show(rows, self._sort, self._reverse)

    def _arrange(self) -> None:
        self._shown = None
        self._order.forget()
        if self._frame is not None and not self._is_paged:
            self._look_grid(self._frame)

    def action_sort(self) -> None:
        """Sort by the next column that is shown."""
        shown = self._grid.shown_columns
        place = shown.index(self._sort) if self._sort in shown else -1
        self._sort_by(shown[(place + 1) % len(shown)])

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._reverse = not self._reverse
        self._arrange()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page has no order."""
        return not self._is_paged if action in ("sort", "reverse") else True

    def _sort_by(self, key: str) -> None:
        self._reverse = not self._reverse if key == self._sort else False
        self._sort = key
        self._arrange()

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self._sort_by(event.column)

    # -- the page ----------------------------------------------------------------------------------------------------

    def open(self, node: str, *, visiting: bool = False) -> None:
        """Show the page of that node; `visiting` from another view, to which Escape then leads back."""
        self._visiting = visiting
        self._turn_to(node)

    def climb(self) -> bool:
        if not self._is_paged:
            return False
        self._turn_to(None)
        return not self._visiting

    @property
    def _is_paged(self) -> bool:
        return self._page.node is not None

    def _turn_to(self, node: str | None) -> None:
        self._page.turn_to(node)
        self._page.display, self._grid.display = self._is_paged, not self._is_paged
        self._shown = None
        if self._frame is not None:
            self.look(self._frame)
        self.screen.set_focus(self.home())
        self.refresh_bindings()

    # -- what is chosen ----------------------------------------------------------------------------------------------

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        if event.view is self._grid and self._grid.selected is not None:
            event.stop()
            self.open(self._grid.selected.key)

    def sheets(self) -> Sequence[Sheet]:
        if self._frame is None:
            return ()
        if self._is_paged:  # the grid below has stood still since the page was opened
            self._look_grid(self._frame)
        columns, rows = self._grid.shown_columns or [column.key for column in COLUMNS], self._grid.rows
        of_all = f"Nodes: {counted('node', len(rows), len(self._frame.fleet.nodes))}, as listed"
        selected = [row for row in rows if row.key == self.selected_node]
        found = [node_sheet(of_all, rows, columns)] if rows else []
        if selected:
            found.append(node_sheet(f"Selected: {counted('node', len(selected))}", selected, columns))
        return found

    @property
    def selected_node(self) -> str | None:
        if self._is_paged:
            return self._page.node
        return self._grid.selected.key if self._grid.selected else None

    def teller(self) -> Teller | None:
        return self._page.teller() if self._is_paged else None
