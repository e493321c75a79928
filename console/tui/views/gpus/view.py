"""6 GPUs: a row a GPU with every figure; Enter opens the page of one, with its curves."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.store import GpuKey
from ....present.spans import Line, plain
from ...keymap.actions import Action, bindings, in_scope
from ...snapshot import ScreenSnapshot
from ...widgets.record_grid import GridColumn, RecordGrid
from ..list_view import column
from ..paged_list import PagedListView
from .columns import CURVE_CELLS, FIELDS, KIND
from .model import GpuRow, Recent, gpu_rows, ranks_on
from .page import GpuPage

#: In their order on the screen. At 80 cells: state, node, gpu, utilisation with its curve, memory, power, heat, ranks.
COLUMNS: tuple[GridColumn[GpuRow], ...] = (
    column(FIELDS["state"], 10, leads=True, grow=6),
    column(FIELDS["node"], 9, leads=True, grow=12),
    column(FIELDS["gpu"], 3, right=True, leads=True),
    column(FIELDS["util"], 6, 1, right=True),
    column(FIELDS["curve"], CURVE_CELLS + 1, 7),
    column(FIELDS["mem"], 5, 2, right=True),
    column(FIELDS["used"], 5, 9, right=True),
    column(FIELDS["bus"], 10, 26, right=True),
    column(FIELDS["power"], 4, 3, right=True),
    column(FIELDS["temp"], 3, 4, right=True),
    column(FIELDS["mem_temp"], 6, 24, right=True),
    column(FIELDS["fan"], 5, 33, right=True),
    column(FIELDS["sm_clock"], 6, 6, right=True),
    column(FIELDS["mem_clock"], 7, 31, right=True),
    column(FIELDS["pstate"], 2, 32, right=True),
    column(FIELDS["held"], 10, 8, right=True),
    column(FIELDS["reasons"], 17, 23, grow=20),
    column(FIELDS["sm"], 5, 14, right=True),
    column(FIELDS["occupancy"], 11, 27, right=True),
    column(FIELDS["tensor"], 8, 15, right=True),
    column(FIELDS["dram"], 6, 16, right=True),
    column(FIELDS["encoder"], 5, 34, right=True),
    column(FIELDS["decoder"], 5, 35, right=True),
    column(FIELDS["nvlink_rx"], 11, 10, right=True),
    column(FIELDS["nvlink_tx"], 11, 11, right=True),
    column(FIELDS["pcie_rx"], 9, 12, right=True),
    column(FIELDS["pcie_tx"], 9, 13, right=True),
    column(FIELDS["slot"], 5, 25, right=True),
    column(FIELDS["ecc"], 3, 17, right=True),
    column(FIELDS["ecc_corrected"], 8, 28, right=True),
    column(FIELDS["rows"], 13, 18, right=True),
    column(FIELDS["replays"], 7, 29, right=True),
    column(FIELDS["nvlink_errors"], 11, 19, right=True),
    column(FIELDS["ranks"], 6, 5, grow=8),
    column(FIELDS["model"], 14, 21, grow=14),
    column(FIELDS["driver"], 10, 30),
    column(FIELDS["uuid"], 12, 36, grow=28),
)


class GpusView(PagedListView[GpuRow, GpuKey]):
    """The grid, or the page of one GPU over it."""

    scope = "gpus"
    BINDINGS = bindings(in_scope("gpus"))
    kind, columns = KIND, COLUMNS
    page_actions = ("figure", "span")

    def __init__(self, *, id: str) -> None:
        self._page = GpuPage(id="gpu-page")
        super().__init__(RecordGrid(COLUMNS, id="gpu-grid"), self._page, id=id)  # type: ignore[arg-type]
        self._rows: tuple[object, list[GpuRow]] = (None, [])

    @property
    def actions(self) -> list[Action]:
        return in_scope(self.scope) if self.is_paged else super().actions

    # -- the list ----------------------------------------------------------------------------------------------------

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.fleet, frame.jobs, frame.findings)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[GpuRow]:
        basis = self.dependencies(frame)
        if self._rows[0] is None or any(a is not b for a, b in zip(basis, self._rows[0], strict=True)):  # type: ignore[call-overload]
            ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
            self._rows = (basis, gpu_rows(frame.fleet, frame.gpus, ranks, frame.findings, _recent(frame)))
        return self._rows[1]

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        if not frame.settled:
            return (plain("discovering GPUs …", "muted"),)
        return (
            plain("No GPUs found on these nodes."),
            plain(""),
            plain('The node page (n, Enter) shows the cause under "no gpu": no driver,', "muted"),
            plain("driver/library mismatch, or no permission.", "muted"),
        )

    # -- the page ----------------------------------------------------------------------------------------------------

    def show_page(self, frame: ScreenSnapshot) -> None:
        self._page.show_snapshot(frame, self.row_of_page(frame))

    def action_figure(self) -> None:
        """Draw the curve of the next figure."""
        self._page.next_figure()

    def action_span(self) -> None:
        """Five minutes, or the hour."""
        self._page.turn_span()

    @property
    def selected_node(self) -> str | None:
        key = self.selected_key
        return key[0] if key is not None else None


def _recent(frame: ScreenSnapshot) -> Recent | None:
    """The last minutes of one metric, where somebody keeps them."""
    history = frame.history
    return history.series["gpu"].recent if history is not None else None
