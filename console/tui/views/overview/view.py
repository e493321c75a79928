"""1 Overview: verdicts, nodes, GPUs, ranks and findings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual import events
from textual.app import ComposeResult

from ....core.store import GpuKey
from ....present.spans import Span
from ....text.cells import clean
from ...keymap.actions import bindings, in_scope
from ...models.export_table import ExportTable
from ...models.heat_map import HEAT_METRICS, HeatRow, PeerRange, heat_row, host_row, peer_range, pointed_spans, uuid_of
from ...models.list_kind import Arrangement
from ...models.node_summary import NodeSummary
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Panel
from ...widgets.heat_map import HeatMap
from ...widgets.line_view import LineReport, LineView
from ..base import DetailProvider, View, finding_in, gpu_in, job_in, node_in
from ..gpus.model import KIND, gpu_rows, ranks_on
from .model import finding_lines, job_lines, node_lines, verdict_lines

#: Nanoseconds between two comparisons of the GPUs.
_PEERS_EVERY_NS = 1_000_000_000
#: Cells. From this width on the title of the map shows all metrics of the GPU under the cursor.
_ALL_FIGURES = 76
#: Characters of a copied name in the message about it.
_LONGEST_NAME = 40
#: Cells. From WIDE on findings are beside the map, below NARROW all parts are in one column.
WIDE, NARROW = 100, 72


class OverviewView(View):
    """Verdicts on jobs that hang or died, if any; below them four parts, in one or two columns."""

    scope = "overview"
    BINDINGS = bindings(in_scope("overview"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._verdict_list = LineReport(id="verdict-list")
        self._node_list = LineReport(id="node-list")
        self._job_list = LineReport(id="job-list")
        self._finding_list = LineReport(id="finding-list")
        self._heat = HeatMap(id="heat")
        self._heat_panel = Panel("GPU", self._heat, id="heat-panel")
        self._metric = HEAT_METRICS[0]
        self._peers: PeerRange | None = None
        self._peers_due = 0  # console time of the last comparison, ns
        self._rows: dict[str, tuple[object, HeatRow]] = {}
        self._grid_rows = ""

    def compose(self) -> ComposeResult:
        yield self._verdict_list
        yield Panel("NODES", self._node_list, id="nodes-panel")
        yield Panel("RANKS", self._job_list, id="jobs-panel")
        yield self._heat_panel
        yield Panel("FINDINGS", self._finding_list, id="findings-panel")

    def initial_focus(self) -> HeatMap:
        """The map."""
        return self._heat

    @property
    def arrangement(self) -> Arrangement:
        """The metric of the map."""
        return Arrangement(metric="" if self._metric is HEAT_METRICS[0] else self._metric.name)

    def restore(self, arrangement: Arrangement) -> None:
        """Apply a saved arrangement."""
        self._metric = next((metric for metric in HEAT_METRICS if metric.name == arrangement.metric), HEAT_METRICS[0])
        self._show_again()

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame; before the first layout only keep it, because text cannot be wrapped to an unknown width."""
        self._frame = frame
        if self._node_list.size.width <= 0:
            return
        for name in self._rows.keys() - frame.fleet.by_name.keys():
            del self._rows[name]
        self._show_verdicts(frame)
        self._node_list.show(node_lines(frame.fleet, self._node_list.size.width - 1))
        self._job_list.show(job_lines(frame.jobs, frame.settled, self._job_list.size.width - 1))
        width, diagnosed = self._finding_list.size.width - 1, bool(frame.hang) or not frame.jobs.jobs
        self._finding_list.show(
            finding_lines(frame.findings, frame.fleet, frame.jobs, frame.settled, width, diagnosed=diagnosed)
        )
        self._compare(frame)
        self._heat.show([self._heat_row(node, frame) for node in frame.fleet.nodes], self._metric.heat.scale)
        self._head(frame)
        self._share_room()

    def _show_verdicts(self, frame: ScreenSnapshot) -> None:
        lines = verdict_lines(frame.findings, self.size.width - 3)[: max(1, self.size.height // 2)]
        self._verdict_list.show(lines)
        self._verdict_list.display = bool(lines)
        if lines:
            self._verdict_list.styles.height = len(lines)

    def _compare(self, frame: ScreenSnapshot) -> None:
        """Compute the range of the peers once per second."""
        if self._peers is None or abs(frame.now - self._peers_due) >= _PEERS_EVERY_NS:
            self._peers_due = frame.now
            fresh = (gpu for node in frame.fleet.nodes if node.fresh for gpu in frame.gpus.of(node.name))
            self._peers = peer_range(fresh, self._metric, self._peers)

    def _heat_row(self, node: NodeSummary, frame: ScreenSnapshot) -> HeatRow:
        """The row of a node; the previous one if nothing in it changed."""
        host = None
        now = frame.nodes.get(node.name)
        if not frame.gpus and now and now.host:
            host = now.host.seq
        basis = (
            frame.gpus.version(node.name), host, self._metric.name, self._peers, node.status, node.word, node.reason,
        )  # fmt: skip
        cached = self._rows.get(node.name)
        if cached is None or cached[0] != basis:
            gpus = frame.gpus.of(node.name)
            row = heat_row(node, gpus, self._metric, self._peers) if frame.gpus else host_row(node, now)
            cached = self._rows[node.name] = (basis, row)
        return cached[1]

    def _head(self, frame: ScreenSnapshot) -> None:
        if not frame.gpus and not any(row.cells for _, row in self._rows.values()):
            self._heat_panel.head("GPU", (Span("no data yet", "muted"),), self._under_cursor(frame))
            return
        if not frame.gpus:
            left = (Span("CPU util of the node", "muted"), Span(" %", "muted"), Span("   no GPU data", "muted"))
            self._heat_panel.head("CPU", left, self._under_cursor(frame))
            return
        sim = (Span(" "), Span(" SIM ", "badge-warning")) if frame.gpus.simulated else ()
        metric = (Span(self._metric.heat.title, "text"), Span(f" {self._metric.heat.unit}", "muted"))
        self._heat_panel.head("GPU", (*metric, *sim), self._under_cursor(frame))

    def _under_cursor(self, frame: ScreenSnapshot) -> tuple[Span, ...]:
        """Name and metrics of the cell under the cursor."""
        pointed = self._heat.pointed
        if pointed is None:
            return ()
        node, place = pointed
        gpus = frame.gpus.of(node)
        row = self._rows[node][1] if node in self._rows else None
        if row is None or place >= len(row.cells):
            return (Span(node, "muted"),)
        if place >= len(gpus):
            return (Span(f"{node} ", "muted"), Span(f"{row.cells[place].text} %", "text"))
        return pointed_spans(node, gpus[place], self._metric, all_of_it=self._heat.size.width >= _ALL_FIGURES)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "wide")
        self.set_class(event.size.width < NARROW, "narrow")
        self._share_room()
        self.call_after_refresh(self._show_again)  # a paused display gets no other frame

    def _share_room(self) -> None:
        """Heights of the grid rows: lists as needed, the map the rest."""
        height = self.size.height - (self._verdict_list.line_count() if self._verdict_list.display else 0)
        nodes, jobs = 1 + self._node_list.line_count(), 1 + self._job_list.line_count()
        quarter = height // 4
        last = _between(2, 1 + self._finding_list.line_count(), quarter)
        if self.has_class("narrow"):
            rows = f"{_between(2, nodes, quarter)} {_between(2, jobs, quarter)} 1fr {last}"
        else:
            first = _between(3, max(nodes, jobs), height * 2 // 5)
            rows = f"{first} 1fr" if self.has_class("wide") else f"{first} 1fr {last}"
        if rows != self._grid_rows:
            self._grid_rows = rows
            self.styles.grid_rows = rows

    def action_metric(self) -> None:
        """Show the next metric in the map."""
        self._metric = HEAT_METRICS[(HEAT_METRICS.index(self._metric) + 1) % len(HEAT_METRICS)]
        self._peers = None
        self._show_again()

    def action_copy(self) -> None:
        """Copy the name of what is under the cursor."""
        name = self._name_under_cursor()
        if name:
            self.console.clip.copy(name, clean(name)[:_LONGEST_NAME])

    def action_copy_row(self) -> None:
        """Copy the line under the cursor."""
        report = self._focused_list
        if report is not None:
            lines = ("".join(span.text for span in line.spans) for line in report.lines if line.key == report.selected)
            text = "\n".join(line.strip() for line in lines)
        else:
            text = "".join(span.text for span in self._under_cursor(self._frame)) if self._frame is not None else ""
        if text:
            self.console.clip.copy(text.strip(), "line")

    @property
    def _focused_list(self) -> LineReport | None:
        """The list with the focus, if something is under its cursor."""
        reports = (self._verdict_list, self._node_list, self._job_list, self._finding_list)
        return next((report for report in reports if report.has_focus and report.selected is not None), None)

    def _name_under_cursor(self) -> str:
        """The node or job, or the culprits of a finding, or else its id."""
        report = self._focused_list
        if report is None:
            return self._heat.selected[0] if self._heat.selected else ""
        if isinstance(report.selected, tuple):
            id, culprits, _ = report.selected
            return ", ".join(culprits) or str(id)
        return str(report.selected)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if self._frame is not None:
            self._head(self._frame)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        """Open the page of a node or a GPU; other details are shown in a dialog."""
        node = self.selected_node
        gpu = self._chosen_gpu() if event.view is self._heat else None
        if gpu is not None:
            event.stop()
            self.open_page(*gpu)
            return
        of_node = event.view is self._node_list or (event.view is self._heat and self._is_bare(node))
        if node is not None and of_node:
            event.stop()
            self.open_page(node)

    def _chosen_gpu(self) -> GpuKey | None:
        """The GPU under the cursor of the map."""
        chosen = self._heat.selected
        if self._frame is None or chosen is None:
            return None
        gpus = self._frame.gpus.of(chosen[0])
        return (chosen[0], uuid_of(gpus[chosen[1]])) if chosen[1] < len(gpus) else None

    def _is_bare(self, node: str | None) -> bool:
        """Whether the cursor is on a node without a GPU."""
        chosen = self._heat.selected
        return self._frame is None or chosen is None or chosen[1] >= len(self._frame.gpus.of(node or ""))

    def export_tables(self) -> Sequence[ExportTable]:
        """All GPUs, and those of the node under the cursor."""
        frame = self._frame
        if frame is None or not frame.gpus:
            return ()
        ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
        rows = gpu_rows(frame.fleet, frame.gpus, ranks, frame.findings, None, frame.nodes)
        columns = ("node", "gpu", "util", "mem", "power", "temp")
        tables = [ExportTable(f"GPUs: {KIND.counted(len(rows))}, by node", KIND, rows, columns)]
        chosen = self._heat.selected
        under = [row for row in rows if chosen is not None and row.summary.name == chosen[0]]
        if chosen is not None and under:
            tables.append(ExportTable(f"Selected: {KIND.counted(len(under))} of {chosen[0]}", KIND, under, columns))
        return tables

    @property
    def selected_node(self) -> str | None:
        """The node under the cursor of the list or the map."""
        if self._node_list.has_focus:
            return str(self._node_list.selected) if self._node_list.selected is not None else None
        return self._heat.selected[0] if self._heat.has_focus and self._heat.selected else None

    def detail_provider(self) -> DetailProvider | None:
        """Details of the node, job, finding or GPU under the cursor."""
        lists = (
            (self._verdict_list, finding_in),
            (self._node_list, node_in),
            (self._job_list, job_in),
            (self._finding_list, finding_in),
        )
        for report, detail in lists:
            if report.has_focus and report.selected is not None:
                return partial(detail, key=report.selected)
        chosen = self._heat.selected
        return None if chosen is None else lambda frame: gpu_in(frame, *chosen) or node_in(frame, chosen[0])


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
