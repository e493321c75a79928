"""6 GPUs: one row per GPU with every metric; Enter opens the page of one, with its curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ....core.store import GpuKey
from ....present.spans import GLYPHS, SEVERITY_STATUS, Line, Span, plain, state_word, wrapped
from ....records import Finding, GpuEvent, Record
from ....text.cells import clean
from ...keymap.actions import Action, bindings, in_scope
from ...models.detail import PageItem
from ...models.job_ranks import JobsSummary
from ...models.plot import Plot
from ...snapshot import ScreenSnapshot
from ...widgets.line_view import LineReport
from ...widgets.plots import HistoryPlot
from ...widgets.record_grid import GridColumn, RecordGrid
from ..base import DetailProvider, event_in
from ..list_view import column
from ..paged_list import BESIDE, DetailPage, PagedListView
from .model import CURVE_CELLS, FIELDS, KIND, GpuRow, GpuRows, ranks_on
from .page_model import EVENTS_SHOWN, PLOT_METRICS, GpuPageData, page_lines, plot_of

#: In screen order. At 80 cells: state, node, gpu, utilisation with its curve, memory, power, temperature, ranks.
COLUMNS: tuple[GridColumn[GpuRow], ...] = (
    column(FIELDS["state"], 10, leads=True, grow=6),
    column(FIELDS["node"], 9, leads=True, grow=12),
    column(FIELDS["gpu"], 3, right=True, leads=True),
    column(FIELDS["util"], 6, 1, right=True),
    column(FIELDS["curve"], CURVE_CELLS + 1, 7),
    column(FIELDS["mem"], 5, 2, right=True),
    column(FIELDS["used"], 5, 10, right=True),
    column(FIELDS["bus"], 10, 26, right=True),
    column(FIELDS["power"], 4, 3, right=True),
    column(FIELDS["temp"], 3, 4, right=True),
    column(FIELDS["mem_temp"], 6, 24, right=True),
    column(FIELDS["fan"], 5, 33, right=True),
    column(FIELDS["sm_clock"], 6, 6, right=True),
    column(FIELDS["mem_clock"], 7, 31, right=True),
    column(FIELDS["pstate"], 2, 32, right=True),
    column(FIELDS["held"], 10, 9, right=True),
    column(FIELDS["reasons"], 17, 23, grow=20),
    column(FIELDS["sm"], 5, 15, right=True),
    column(FIELDS["occupancy"], 11, 27, right=True),
    column(FIELDS["tensor"], 8, 16, right=True),
    column(FIELDS["dram"], 6, 17, right=True),
    column(FIELDS["encoder"], 5, 34, right=True),
    column(FIELDS["decoder"], 5, 35, right=True),
    column(FIELDS["nvlink_rx"], 9, 11, right=True),
    column(FIELDS["nvlink_tx"], 9, 12, right=True),
    column(FIELDS["pcie_rx"], 9, 13, right=True),
    column(FIELDS["pcie_tx"], 9, 14, right=True),
    column(FIELDS["slot"], 5, 25, right=True),
    column(FIELDS["ecc"], 3, 18, right=True),
    column(FIELDS["ecc_corrected"], 8, 28, right=True),
    column(FIELDS["rows"], 13, 19, right=True),
    column(FIELDS["replays"], 7, 29, right=True),
    column(FIELDS["nvlink_errors"], 11, 20, right=True),
    column(FIELDS["ranks"], 6, 5, grow=8),
    column(FIELDS["model"], 14, 8, grow=14),
    column(FIELDS["driver"], 10, 30),
    column(FIELDS["uuid"], 12, 36, grow=28),
)
_NO_GPUS = (
    plain("No GPUs found on these nodes."),
    plain(""),
    plain('The node page (n, Enter) shows the cause under "no gpu": no driver,', "muted"),
    plain("driver/library mismatch, or no permission.", "muted"),
)
#: Nodes whose driver is broken that are named where there is no GPU.
_MOST_BROKEN = 12
#: Lines of one curve at least, beside the text.
_CURVE = 7


def _broken_lines(findings: Sequence[Finding]) -> list[Line]:
    lines = [plain("No GPU can be read on these nodes."), plain("")]
    for finding in findings[:_MOST_BROKEN]:
        status = SEVERITY_STATUS[finding.severity]
        first, *rest = wrapped(clean(finding.text), 68)
        lines += [plain(f"{GLYPHS[status]} {first}", status), *(plain(f"  {text}", status) for text in rest)]
    if len(findings) > _MOST_BROKEN:
        lines.append(plain(f"  and {len(findings) - _MOST_BROKEN} more", "muted"))
    return lines


class GpusView(PagedListView[GpuRow, GpuKey]):
    """The grid, or the page of one GPU."""

    scope = "gpus"
    BINDINGS = bindings(in_scope("gpus"))
    kind, columns = KIND, COLUMNS
    page_actions = ("figure", "span")

    def __init__(self, *, id: str) -> None:
        self._page = GpuPage(id="gpu-page")
        grid: RecordGrid[Any] = RecordGrid(COLUMNS, id="gpu-grid")
        super().__init__(grid, self._page, id=id)
        self._gpu_rows = GpuRows()
        self._ranks: tuple[tuple[object, ...], dict[GpuKey, list[int]]] = ((), {})  # with what they depend on
        self._jobs = JobsSummary()

    @property
    def actions(self) -> list[Action]:
        """On the page only those of GPUs."""
        return in_scope(self.scope) if self.is_paged else super().actions

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The nodes, the ranks on their GPUs, and the findings about these."""
        return (frame.fleet, frame.jobs, frame.findings)

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[GpuRow]:
        """One row per GPU."""
        basis = (id(frame.jobs), frame.gpu_processes.version, frame.gpus.total)
        if basis != self._ranks[0]:
            self._ranks = (basis, ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus))
            self._jobs = frame.jobs  # kept, so that no other object has its id
        recent = frame.history.series["gpu"].recent if frame.history is not None else None
        return self._gpu_rows.rows(frame.fleet, frame.gpus, self._ranks[1], frame.findings, recent, frame.nodes)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """Why there are none, or where to find it."""
        broken = [finding for finding in frame.findings if finding.id == "driver_broken"]
        if broken:
            return _broken_lines(broken)
        return _NO_GPUS if frame.settled else (plain("discovering GPUs …", "muted"),)

    def action_figure(self) -> None:
        """Draw the curve of the next metric."""
        self._page.next_figure()

    def action_span(self) -> None:
        """Toggle the curves between five minutes and an hour."""
        self._page.next_span()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a replay T goes to a time."""
        return self.console.is_live if action == "hottest" else super().check_action(action, parameters)

    def action_hottest(self) -> None:
        """Sort by temperature, the hottest first; from a page, back in the list."""
        if self.is_paged:
            self.on_escape()
        self._sort_figure("temp")

    @property
    def selected_values(self) -> Mapping[str, object]:
        """Node and index of the GPU."""
        row = self._grid.selected
        key, index = self.selected_key, getattr(row, "index", None)
        return {"node": self.selected_node, "gpu": index if key is not None and not self.is_paged else key and key[1]}

    def node_of(self, row: GpuRow) -> str | None:
        """The node of the GPU."""
        return row.summary.name

    @property
    def selected_node(self) -> str | None:
        """The node of the GPU of the page, or under the cursor."""
        key = self.selected_key
        return key[0] if key is not None else None


class GpuPage(DetailPage[GpuRow, GpuKey]):
    """One GPU: every metric as text, and its curves beside or above them."""

    wide_from: ClassVar[int] = 110
    gone_text = "GPU removed"

    def __init__(self, *, id: str) -> None:
        self.report = LineReport(id="gpu-facts")
        super().__init__(self.report, id=id)
        self._curves = [HistoryPlot(classes="gpu-curve") for _ in PLOT_METRICS]
        self._first = 0  # index of the first drawn metric
        self._hour = False

    def compose(self) -> ComposeResult:
        yield self._title
        with Container(id="gpu-body"):
            yield Vertical(*self._curves, id="gpu-curves")
            yield self.report

    def next_figure(self) -> None:
        """Draw the next metric; of several curves it is the first."""
        self._first = (self._first + 1) % len(PLOT_METRICS)
        self._show_again()

    def next_span(self) -> None:
        """Toggle the curves between five minutes and an hour."""
        self._hour = not self._hour
        self._show_again()

    def _basis(self, frame: ScreenSnapshot, row: GpuRow) -> tuple[object, ...]:
        return (row.version, frame.second, frame.events.end, self._first, self._hour)

    def _write(self, frame: ScreenSnapshot, row: GpuRow) -> None:
        status, word = row.row_state
        self._write_title(f"{row.summary.name} gpu{row.index}", Span(f" {GLYPHS[status]} {state_word(word)} ", status))
        width = (self.size.width * 3 // 5 if self._is_wide else self.size.width) - BESIDE
        self.report.show(page_lines(_page_data(frame, row), width))
        plots = self._plots(frame, row)
        for index, curve in enumerate(self._curves):
            curve.display = index < len(plots)
            if index < len(plots):
                curve.show(
                    plots[index], (row.key, frame.second, plots[index].title, self._hour, row.gpu and row.gpu.seq)
                )

    def _plots(self, frame: ScreenSnapshot, row: GpuRow) -> list[Plot]:
        """As many as there is room for, beginning with the chosen metric; unknown metrics are left out."""
        if frame.history is None:
            return []
        room = max(1, (self.size.height - 1) // _CURVE) if self._is_wide else 1
        plots: list[Plot] = []
        for metric in (*PLOT_METRICS[self._first :], *PLOT_METRICS[: self._first]):
            plot = plot_of(frame.history, row.key, metric, row.info, hour=self._hour)
            plots += [plot] if plot.is_known else []
            if len(plots) == room:
                break
        return plots

    def detail_provider(self) -> DetailProvider | None:
        """Details of the event under the cursor."""
        item = self.report.selected
        if not isinstance(item, PageItem) or item.kind != "event":
            return None
        return lambda frame: event_in(frame, cast(int, item.key))


def _page_data(frame: ScreenSnapshot, row: GpuRow) -> GpuPageData:
    processes = [process for process in frame.gpu_processes.values() if (process.node, process.uuid) == row.key]
    links = [link for link in frame.gpu_links.values() if (link.node, link.uuid) == row.key]
    return GpuPageData(
        row, sorted(processes, key=lambda process: -(process.mem_used_bytes or 0)),
        sorted(links, key=lambda link: link.link), frame.events.newest(_is_about(row), EVENTS_SHOWN),
    )  # fmt: skip


def _is_about(row: GpuRow) -> Callable[[Record], bool]:
    """Whether an event is one of this GPU, or has it as a culprit."""

    def is_about(record: Record) -> bool:
        if isinstance(record, GpuEvent):
            return (record.node, record.uuid) == row.key
        return isinstance(record, Finding) and row.name in record.culprits

    return is_about
