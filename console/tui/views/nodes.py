"""n Nodes: a row a node; Enter opens the page of one, with everything known of it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widget import Widget

from ..models.nodelist import FIELDS, KIND
from ..models.noderows import NodeRow, node_rows
from ..models.spans import Line, plain
from ..watch import Frame
from ..widgets.line_view import LineView
from ..widgets.record_grid import Column, RecordGrid
from .base import Teller
from .listing import Listing, column
from .node_page import NodePage

#: In their order on the screen. At 80 cells: state, node, CPU, memory, I/O stall, network, GPUs, ranks, agent.
COLUMNS: tuple[Column[NodeRow], ...] = (
    column(FIELDS["state"], 12, leads=True, grow=3),
    column(FIELDS["node"], 9, leads=True, grow=12),
    column(FIELDS["cpu"], 5, 1, right=True),
    column(FIELDS["mem"], 5, 2, right=True),
    column(FIELDS["cpu_stall"], 9, 14, right=True),
    column(FIELDS["mem_stall"], 9, 15, right=True),
    column(FIELDS["io_stall"], 9, 7, right=True),
    column(FIELDS["read"], 6, 10, right=True),
    column(FIELDS["write"], 7, 11, right=True),
    column(FIELDS["rx"], 5, 6, right=True),
    column(FIELDS["tx"], 5, 6, right=True),
    column(FIELDS["gpus"], 4, 3, right=True),
    column(FIELDS["ranks"], 5, 4, right=True),
    column(FIELDS["agent"], 7, 5, right=True),
    column(FIELDS["agent_rss"], 5, 12, right=True),
    column(FIELDS["hostname"], 10, 17, grow=12),
    column(FIELDS["kernel"], 12, 13, grow=10),
    column(FIELDS["python"], 7, 16),
    column(FIELDS["tags"], 6, 9, grow=14),
    column(FIELDS["reason"], 12, 8, grow=40),
)
#: What has no meaning while a page stands over the list.
_OF_THE_LIST = ("sort", "reverse", "filter", "group", "copy", "copy_json", "columns")


class Nodes(Listing[NodeRow]):
    """The grid, or the page of one node over it."""

    scope = "nodes"
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        super().__init__(RecordGrid(COLUMNS, id="node-grid"), id=id)  # type: ignore[arg-type]
        self._page = NodePage(id="node-page")
        self._page.display = False
        self._visiting = False  # the page was opened from another view: the way out leads there

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing
        yield self._page

    def home(self) -> Widget:
        return self._page.facts if self._is_paged else self._grid

    def look(self, frame: Frame) -> None:
        if self._is_paged:
            self._frame = frame
            self._page.look(frame)
        else:
            super().look(frame)

    # -- the list ----------------------------------------------------------------------------------------------------

    def basis(self, frame: Frame) -> tuple[object, ...]:
        return (frame.fleet, frame.jobs)

    def all_rows(self, frame: Frame) -> Sequence[NodeRow]:
        return node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)

    def count(self, frame: Frame) -> int:
        return len(frame.fleet.nodes)

    def words_for_nothing(self, frame: Frame) -> Sequence[Line]:
        return (plain("No node is expected here."), plain("Add one from the palette (Ctrl-P).", "muted"))

    def redraw(self) -> None:
        if not self._is_paged:
            super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page has no order, no columns and no filter."""
        return not self._is_paged if action in _OF_THE_LIST else True

    # -- the page ----------------------------------------------------------------------------------------------------

    def open(self, node: str, *, visiting: bool = False) -> None:
        """Show the page of that node; `visiting` from another view, to which Escape then leads back."""
        self._visiting = visiting
        self._turn_to(node)

    def climb(self) -> bool:
        if not self._is_paged:
            return super().climb()
        self._turn_to(None)
        return not self._visiting

    @property
    def _is_paged(self) -> bool:
        return self._page.node is not None

    def _turn_to(self, node: str | None) -> None:
        self._page.turn_to(node)
        self._page.display, self._grid.display = self._is_paged, not self._is_paged
        self.set_class(self._is_paged, "paged")
        if self._is_paged and self._frame is not None:
            self._page.look(self._frame)
        else:
            self.redraw()
        self.screen.set_focus(self.home())
        self.refresh_bindings()

    # -- what is chosen ----------------------------------------------------------------------------------------------

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        row = self._grid.selected
        if event.view is self._grid and row is not None:
            event.stop()
            if isinstance(row, NodeRow):
                self.open(row.key)

    def _chosen(self) -> list[NodeRow]:
        if self._page.node is None or self._frame is None:
            return super()._chosen()
        return [row for row in self.all_rows(self._frame) if row.key == self._page.node]

    @property
    def selected_node(self) -> str | None:
        if self._is_paged:
            return self._page.node
        row = self._grid.selected
        return row.key if isinstance(row, NodeRow) else None

    def teller(self) -> Teller | None:
        return self._page.teller() if self._is_paged else None
