"""n Nodes: a row a node; Enter opens the page of one, with everything known of it."""

from __future__ import annotations

from collections.abc import Sequence

from ....present.spans import Line, plain
from ...snapshot import ScreenSnapshot
from ...widgets.record_grid import GridColumn, RecordGrid
from ..list_view import column
from ..paged_list import PagedListView
from .columns import FIELDS, KIND
from .model import NodeRow, node_rows
from .page import NodePage

#: In their order on the screen. At 80 cells: state, node, CPU, memory, I/O stall, network, GPUs, ranks, agent.
COLUMNS: tuple[GridColumn[NodeRow], ...] = (
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
    column(FIELDS["agent_rss"], 9, 12, right=True),
    column(FIELDS["hostname"], 10, 17, grow=12),
    column(FIELDS["kernel"], 12, 13, grow=10),
    column(FIELDS["python"], 7, 16),
    column(FIELDS["tags"], 6, 9, grow=14),
    column(FIELDS["reason"], 12, 8, grow=40),
)


class NodesView(PagedListView[NodeRow, str]):
    """The grid, or the page of one node over it."""

    scope = "nodes"
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        self._page = NodePage(id="node-page")
        super().__init__(RecordGrid(COLUMNS, id="node-grid"), self._page, id=id)  # type: ignore[arg-type]

    def show_page(self, frame: ScreenSnapshot) -> None:
        self._page.show_snapshot(frame)

    @property
    def selected_node(self) -> str | None:
        return self.selected_key

    # -- the list ----------------------------------------------------------------------------------------------------

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.fleet, frame.jobs)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[NodeRow]:
        return node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)

    def count(self, frame: ScreenSnapshot) -> int:
        return len(frame.fleet.nodes)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        return (plain("No nodes configured."), plain("Add one with the command palette (Ctrl-P).", "muted"))
