"""6 GPUs: a row a GPU with every figure; Enter opens the page of one, with its curves."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widget import Widget

from ...store import GpuKey
from ..keys import Action, bindings, in_scope
from ..models.gpulist import CURVE_CELLS, FIELDS, KIND
from ..models.gpurows import GpuRow, Recent, gpu_rows, ranks_on
from ..models.spans import Line, plain
from ..watch import Frame
from ..widgets.line_view import LineView
from ..widgets.record_grid import Column, RecordGrid
from .base import Teller
from .gpu_page import GpuPage
from .listing import Listing, column

#: In their order on the screen. At 80 cells: state, node, gpu, utilisation with its curve, memory, power, heat, ranks.
COLUMNS: tuple[Column[GpuRow], ...] = (
    column(FIELDS["state"], 10, leads=True, grow=6),
    column(FIELDS["node"], 9, leads=True, grow=12),
    column(FIELDS["gpu"], 3, right=True, leads=True),
    column(FIELDS["util"], 6, 1, right=True),
    column(FIELDS["curve"], CURVE_CELLS + 1, 7),
    column(FIELDS["mem"], 5, 2, right=True),
    column(FIELDS["used"], 5, 9, right=True),
    column(FIELDS["bus"], 5, 26, right=True),
    column(FIELDS["power"], 4, 3, right=True),
    column(FIELDS["temp"], 3, 4, right=True),
    column(FIELDS["mem_temp"], 6, 24, right=True),
    column(FIELDS["fan"], 5, 33, right=True),
    column(FIELDS["sm_clock"], 6, 6, right=True),
    column(FIELDS["mem_clock"], 7, 31, right=True),
    column(FIELDS["pstate"], 2, 32, right=True),
    column(FIELDS["held"], 6, 8, right=True),
    column(FIELDS["reasons"], 17, 23, grow=20),
    column(FIELDS["sm"], 5, 14, right=True),
    column(FIELDS["occupancy"], 7, 27, right=True),
    column(FIELDS["tensor"], 8, 15, right=True),
    column(FIELDS["dram"], 6, 16, right=True),
    column(FIELDS["encoder"], 5, 34, right=True),
    column(FIELDS["decoder"], 5, 35, right=True),
    column(FIELDS["nvlink_rx"], 8, 10, right=True),
    column(FIELDS["nvlink_tx"], 9, 11, right=True),
    column(FIELDS["pcie_rx"], 9, 12, right=True),
    column(FIELDS["pcie_tx"], 10, 13, right=True),
    column(FIELDS["slot"], 5, 25, right=True),
    column(FIELDS["ecc"], 3, 17, right=True),
    column(FIELDS["ecc_corrected"], 8, 28, right=True),
    column(FIELDS["rows"], 4, 18, right=True),
    column(FIELDS["replays"], 7, 29, right=True),
    column(FIELDS["nvlink_errors"], 7, 19, right=True),
    column(FIELDS["ranks"], 6, 5, grow=8),
    column(FIELDS["model"], 14, 21, grow=14),
    column(FIELDS["driver"], 10, 30),
    column(FIELDS["uuid"], 12, 36, grow=28),
)
#: What has no meaning while a page stands over the list, and only then.
_OF_THE_LIST = ("sort", "reverse", "filter", "group", "copy", "copy_json", "columns")
_OF_THE_PAGE = ("figure", "span")


class Gpus(Listing[GpuRow]):
    """The grid, or the page of one GPU over it."""

    scope = "gpus"
    BINDINGS = bindings(in_scope("gpus"))
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        super().__init__(RecordGrid(COLUMNS, id="gpu-grid"), id=id)  # type: ignore[arg-type]
        self._page = GpuPage(id="gpu-page")
        self._page.display = False
        self._visiting = False  # the page was opened from another view: the way out leads there
        self._rows: tuple[object, list[GpuRow]] = (None, [])

    @property
    def actions(self) -> list[Action]:
        return in_scope(self.scope) if self._is_paged else super().actions

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing
        yield self._page

    def home(self) -> Widget:
        return self._page.report if self._is_paged else self._grid

    def look(self, frame: Frame) -> None:
        if self._is_paged:
            self._frame = frame
            self._page.look(frame, self._row(frame))
        else:
            super().look(frame)

    # -- the list ----------------------------------------------------------------------------------------------------

    def basis(self, frame: Frame) -> tuple[object, ...]:
        return (frame.fleet, frame.jobs, frame.findings)

    def all_rows(self, frame: Frame) -> Sequence[GpuRow]:
        basis = self.basis(frame)
        if self._rows[0] is None or any(a is not b for a, b in zip(basis, self._rows[0], strict=True)):  # type: ignore[call-overload]
            ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
            self._rows = (basis, gpu_rows(frame.fleet, frame.gpus, ranks, frame.findings, _recent(frame)))
        return self._rows[1]

    def words_for_nothing(self, frame: Frame) -> Sequence[Line]:
        if not frame.settled:
            return (plain("looking for GPUs …", "muted"),)
        return (
            plain("No GPU was found on these nodes."),
            plain(""),
            plain("A node's page (n, Enter) says under \"no gpu\" why: no driver, a library", "muted"),
            plain("that does not fit it, or no permission.", "muted"),
        )

    def redraw(self) -> None:
        if not self._is_paged:
            super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page has no order, no columns and no filter; a list has no curves to choose."""
        if action in _OF_THE_LIST:
            return not self._is_paged
        return self._is_paged if action in _OF_THE_PAGE else True

    # -- the page ----------------------------------------------------------------------------------------------------

    def open(self, key: GpuKey, *, visiting: bool = False) -> None:
        """Show the page of that GPU; `visiting` from another view, to which Escape then leads back."""
        self._visiting = visiting
        self._turn_to(key)

    def climb(self) -> bool:
        if not self._is_paged:
            return super().climb()
        self._turn_to(None)
        return not self._visiting

    def action_figure(self) -> None:
        """Draw the curve of the next figure."""
        self._page.next_figure()

    def action_span(self) -> None:
        """Five minutes, or the hour."""
        self._page.turn_span()

    @property
    def _is_paged(self) -> bool:
        return self._page.key is not None

    def _row(self, frame: Frame) -> GpuRow | None:
        return next((row for row in self.all_rows(frame) if row.key == self._page.key), None)

    def _turn_to(self, key: GpuKey | None) -> None:
        self._page.turn_to(key)
        self._page.display, self._grid.display = self._is_paged, not self._is_paged
        self.set_class(self._is_paged, "paged")
        if self._is_paged and self._frame is not None:
            self._page.look(self._frame, self._row(self._frame))
        else:
            self.redraw()
        self.screen.set_focus(self.home())
        self.refresh_bindings()

    # -- what is chosen ----------------------------------------------------------------------------------------------

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        row = self._grid.selected
        if event.view is self._grid and row is not None:
            event.stop()
            if isinstance(row, GpuRow):
                self.open(row.key)

    def _chosen(self) -> list[GpuRow]:
        if not self._is_paged or self._frame is None:
            return super()._chosen()
        row = self._row(self._frame)
        return [row] if row is not None else []

    @property
    def selected_node(self) -> str | None:
        if self._page.key is not None:
            return self._page.key[0]
        row = self._grid.selected
        return row.summary.name if isinstance(row, GpuRow) else None

    def teller(self) -> Teller | None:
        return self._page.teller() if self._is_paged else None


def _recent(frame: Frame) -> Recent | None:
    """The last minutes of one metric, where somebody keeps them."""
    history = frame.history
    return history.series["gpu"].recent if history is not None else None
