"""1 Overview: is it moving? Nodes, GPUs, ranks and findings at one glance."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from ....core.store import GpuKey
from ....present.spans import Span
from ...keymap.actions import bindings, in_scope
from ...models import detail
from ...models.gpu_metrics import HEAT_METRICS, PeerRange, peer_range
from ...models.heat_map import HeatRow, heat_row, host_row, pointed_spans, uuid_of
from ...models.list_kind import Arrangement
from ...models.node_summary import NodeSummary
from ...models.table_export import ExportTable
from ...snapshot import ScreenSnapshot
from ...widgets.heat_map import HeatMap
from ...widgets.line_view import LineView
from ...widgets.panel import Panel
from ...widgets.report import LineReport
from ..base import DetailProvider, GpuPageRequested, NodePageRequested, View
from ..gpus.columns import KIND
from ..gpus.model import gpu_rows, ranks_on
from .model import finding_lines, job_lines, node_lines

#: The GPUs are compared with each other so often.
_PEERS_EVERY_NS = 1_000_000_000
#: From this width on the heading of the map has all figures of the GPU that is pointed at.
_ALL_FIGURES = 76
#: From this width on two columns of parts; below the second only one.
WIDE, NARROW = 100, 72


class OverviewView(View):
    """Four parts; which stand side by side depends on the width."""

    scope = "overview"
    BINDINGS = bindings(in_scope("overview"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._node_list = LineReport(id="node-list")
        self._job_list = LineReport(id="job-list")
        self._finding_list = LineReport(id="finding-list")
        self._heat = HeatMap(id="heat")
        self._heat_panel = Panel("GPU", self._heat, id="heat-panel")
        self._metric = HEAT_METRICS[0]
        self._peers: PeerRange | None = None
        self._peers_due = 0  # console time of the last comparison, ns
        self._rows: dict[str, tuple[object, HeatRow]] = {}
        self._frame: ScreenSnapshot | None = None

    def compose(self) -> ComposeResult:
        yield Panel("NODES", self._node_list, id="nodes-panel")
        yield Panel("RANKS", self._job_list, id="jobs-panel")
        yield self._heat_panel
        yield Panel("FINDINGS", self._finding_list, id="findings-panel")

    def initial_focus(self) -> HeatMap:
        return self._heat

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement(metric="" if self._metric is HEAT_METRICS[0] else self._metric.name)

    def restore(self, arrangement: Arrangement) -> None:
        self._metric = next((metric for metric in HEAT_METRICS if metric.name == arrangement.metric), HEAT_METRICS[0])
        if self._frame is not None:
            self.show_snapshot(self._frame)

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        self._frame = frame
        for name in self._rows.keys() - frame.fleet.by_name.keys():
            del self._rows[name]
        self._node_list.show(node_lines(frame.fleet, self._node_list.size.width - 1))
        self._job_list.show(job_lines(frame.jobs, frame.settled, self._job_list.size.width - 1))
        self._finding_list.show(
            finding_lines(
                frame.findings,
                frame.fleet,
                frame.jobs,
                frame.settled,
                self._finding_list.size.width - 1,
                diagnosed=bool(frame.hang) or not frame.jobs.jobs,
            )
        )
        self._compare(frame)
        self._heat.show([self._heat_row(node, frame) for node in frame.fleet.nodes], self._metric.heat.scale)
        self._head(frame)
        self._share_room()

    def _compare(self, frame: ScreenSnapshot) -> None:
        """What the GPUs have in common; looked at once a second, for it holds still."""
        if self._peers is None or abs(frame.now - self._peers_due) >= _PEERS_EVERY_NS:
            self._peers_due = frame.now
            fresh = (gpu for node in frame.fleet.nodes if node.fresh for gpu in frame.gpus.of(node.name))
            self._peers = peer_range(fresh, self._metric, self._peers)

    def _heat_row(self, node: NodeSummary, frame: ScreenSnapshot) -> HeatRow:
        """The row of a node; the one before, where nothing of it changed."""
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
        """The figures of the cell that is pointed at, with its name."""
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

    # -- room --------------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "wide")
        self.set_class(event.size.width < NARROW, "narrow")
        self._share_room()
        if self._frame is not None:  # lines are made for a width; a frozen picture gets no other frame
            self.call_after_refresh(self.show_snapshot, self._frame)

    def _share_room(self) -> None:
        """Rows of the grid: each part as many lines as it has to say, the map the rest."""
        height = self.size.height
        nodes, jobs = 1 + self._node_list.line_count(), 1 + self._job_list.line_count()
        quarter = height // 4
        last = _between(2, 1 + self._finding_list.line_count(), quarter)
        if self.has_class("narrow"):
            rows = f"{_between(2, nodes, quarter)} {_between(2, jobs, quarter)} 1fr {last}"
        else:
            first = _between(3, max(nodes, jobs), height * 2 // 5)
            rows = f"{first} 1fr" if self.has_class("wide") else f"{first} 1fr {last}"
        if rows != self._given_rows:
            self._given_rows = rows
            self.styles.grid_rows = rows

    _given_rows = ""

    # -- acting ------------------------------------------------------------------------------------------------------

    def action_metric(self) -> None:
        """Show the next figure in the map."""
        self._metric = HEAT_METRICS[(HEAT_METRICS.index(self._metric) + 1) % len(HEAT_METRICS)]
        self._peers = None
        if self._frame is not None:
            self.show_snapshot(self._frame)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if self._frame is not None:
            self._head(self._frame)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        """A node and a GPU have pages of their own; everything else is told in a dialog."""
        node = self.selected_node
        gpu = self._chosen_gpu() if event.view is self._heat else None
        if gpu is not None:
            event.stop()
            self.post_message(GpuPageRequested(*gpu))
            return
        of_node = event.view is self._node_list or (event.view is self._heat and self._is_bare(node))
        if node is not None and of_node:
            event.stop()
            self.post_message(NodePageRequested(node))

    def _chosen_gpu(self) -> GpuKey | None:
        """The GPU under the cursor of the map."""
        chosen = self._heat.selected
        if self._frame is None or chosen is None:
            return None
        gpus = self._frame.gpus.of(chosen[0])
        return (chosen[0], uuid_of(gpus[chosen[1]])) if chosen[1] < len(gpus) else None

    def _is_bare(self, node: str | None) -> bool:
        """Whether there is no GPU under the cursor, only its node."""
        chosen = self._heat.selected
        return self._frame is None or chosen is None or chosen[1] >= len(self._frame.gpus.of(node or ""))

    def export_tables(self) -> Sequence[ExportTable]:
        frame = self._frame
        if frame is None or not frame.gpus:
            return ()
        ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
        rows = gpu_rows(frame.fleet, frame.gpus, ranks, frame.findings, None)
        columns = ("node", "gpu", "util", "mem", "power", "temp")
        tables = [ExportTable(f"GPUs: {KIND.counted(len(rows))}, by node", KIND, rows, columns)]
        chosen = self._heat.selected
        under = [row for row in rows if chosen is not None and row.summary.name == chosen[0]]
        if chosen is not None and under:
            tables.append(ExportTable(f"Selected: {KIND.counted(len(under))} of {chosen[0]}", KIND, under, columns))
        return tables

    @property
    def selected_node(self) -> str | None:
        if self._node_list.has_focus:
            return str(self._node_list.selected) if self._node_list.selected is not None else None
        return self._heat.selected[0] if self._heat.has_focus and self._heat.selected else None

    def detail_provider(self) -> DetailProvider | None:
        lists = ((self._node_list, _node_detail), (self._job_list, _job_detail), (self._finding_list, _finding_detail))
        for report, tell in lists:
            key = report.selected
            if report.has_focus and key is not None:
                return lambda frame, key=key, tell=tell: tell(frame, key)  # type: ignore[misc]
        chosen = self._heat.selected
        if chosen is None:
            return None
        return lambda frame: _gpu_detail(frame, *chosen)


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))


def _node_detail(frame: ScreenSnapshot, name: object) -> detail.Detail | None:
    node = frame.fleet.by_name.get(str(name))
    return detail.node_detail(node, frame.nodes.get(node.name)) if node else None


def _job_detail(frame: ScreenSnapshot, key: object) -> detail.Detail | None:
    return next((detail.job_detail(job) for job in frame.jobs.jobs if job.job == key), None)


def _finding_detail(frame: ScreenSnapshot, key: object) -> detail.Detail | None:
    findings = (finding for finding in frame.findings if (finding.id, finding.culprits) == key)
    return next((detail.finding_detail(finding) for finding in findings), None)


def _gpu_detail(frame: ScreenSnapshot, name: str, place: int) -> detail.Detail | None:
    node, gpus = frame.fleet.by_name.get(name), frame.gpus.of(name)
    if node is None:
        return None
    return detail.gpu_detail(node, gpus[place]) if place < len(gpus) else _node_detail(frame, name)
