"""1 Overview: verdicts, jobs, findings, trends, nodes, GPUs, resources and events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec
from textual import events
from textual.app import ComposeResult

from ....core.store import GpuKey
from ....core.store.freshness import gpu_stale_ns
from ....present.spans import Span
from ....records import Finding
from ...keymap.actions import bindings, in_scope
from ...models.detail import PageItem
from ...models.export_table import ExportTable
from ...models.finding_fold import FoldedFinding, fold_findings
from ...models.heat_map import (
    HEAT_METRICS,
    WHOLE_NODE,
    HeatRow,
    NodeCells,
    PeerRange,
    heat_row,
    host_row,
    lines_for_map,
    lines_of_bars,
    node_cell,
    peer_range,
    pointed_spans,
    uuid_of,
)
from ...models.list_kind import Arrangement
from ...models.node_summary import NodeSummary
from ...models.trends import TrendGroup
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Panel
from ...widgets.heat_map import HeatMap
from ...widgets.line_view import LineReport, LineView
from ...widgets.record_grid import WAIT_S
from ..base import DetailProvider, View, finding_in, gpu_in, job_in, node_in
from ..gpus.model import KIND, GpuRows, ranks_on
from .model import finding_lines, job_lines, node_lines, verdict_lines
from .panels import LEFT, RIGHT, event_lines, fill_columns, resource_lines, trend_lines, trends_height
from .selection import cell_name, detail_of, find_cell, find_row, map_title, row_name, thing_name

#: Nanoseconds between two comparisons of the GPUs.
_PEERS_EVERY_NS = 1_000_000_000
#: Cells. From this width on the title of the map shows all metrics of the GPU under the cursor.
_ALL_FIGURES = 76
#: Cells. From here on the parts are in two columns.
WIDE = 100
#: Lines from which on findings and reasons are wrapped, not cut.
_TALL = 28
#: Events that are shown at most, and the share of the height that numbers in the map may fill.
_EVENTS, _MAP_SHARE = 60, 0.6
#: Nodes from which on the map may have one cell per node; fewer scroll, with their names.
_MANY_NODES = 128
#: Cells between the two columns.
_GUTTER = 2


class OverviewView(View):
    """Verdicts on jobs that hang or died, if any; below them the parts, in one or two columns.

    What there is no room for is left out, the last part first; where there is more room than lines, curves are higher
    and more events are shown.
    """

    scope = "overview"
    BINDINGS = bindings(in_scope("overview"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._verdict_list = LineReport(id="verdict-list")
        self._node_list = LineReport(id="node-list")
        self._job_list = LineReport(id="job-list")
        self._finding_list = LineReport(id="finding-list")
        self._trend_list = LineReport(id="trend-list")
        self._resource_list = LineReport(id="resource-list")
        self._event_list = LineReport(id="event-list")
        self._heat = HeatMap(id="heat")
        self._heat_panel = Panel("GPU", self._heat, id="heat-panel")
        panels = (
            ("jobs-panel", "RANKS", self._job_list), ("findings-panel", "FINDINGS", self._finding_list),
            ("trends-panel", "LAST 5 MIN", self._trend_list), ("nodes-panel", "NODES", self._node_list),
            ("resources-panel", "RESOURCES", self._resource_list), ("events-panel", "EVENTS", self._event_list),
        )  # fmt: skip
        self._panels = {id: Panel(title, body, id=id) for id, title, body in panels} | {"heat-panel": self._heat_panel}
        self._metric = HEAT_METRICS[0]
        self._peers: PeerRange | None = None
        self._peers_due = 0  # console time of the last comparison, ns
        self._rows: dict[str, tuple[object, HeatRow]] = {}
        self._cells: NodeCells | None = None  # where the GPUs of all nodes do not fit
        self._placed: tuple[object, ...] = ()  # where the panels are
        self._written: dict[str, tuple[object, ...]] = {}  # what the parts were written from
        self._trends_height = 1
        self._folded: tuple[Sequence[Finding], tuple[FoldedFinding, ...]] = ((), ())  # findings, and as they are shown
        self._heights: dict[str, int] = {}  # lines of each panel; 0: it is not shown
        # The row that the cursor shall move to, until when (monotonic, s), and the one that it is on meanwhile.
        self._wanted_row, self._wanted_until, self._row_before = "", 0.0, ""

    def compose(self) -> ComposeResult:
        yield self._verdict_list
        yield from (self._panels[id] for id in (*LEFT, *RIGHT, "events-panel"))

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
        if self.size.width <= 0:
            return
        for name in self._rows.keys() - frame.fleet.by_name.keys():
            del self._rows[name]
        self._show_verdicts(frame)
        left, right = (width - 1 for width in self._column_widths)
        whole = self.size.height >= _TALL
        self._node_list.show(node_lines(frame.fleet, right))
        reports = frame.fleet.ok > 0 or not frame.fleet.expected
        self._job_list.show(job_lines(frame.jobs, frame.settled, left, whole=whole, reports=reports))
        diagnosed = bool(frame.hang) or not frame.jobs.jobs
        self._finding_list.show(finding_lines(
            self._folded_findings(frame), frame.fleet, frame.jobs, frame.settled, left, diagnosed=diagnosed, whole=whole
        ))  # fmt: skip
        self._compare(frame)
        self._show_map(frame, right - 1)
        self._head(frame)
        figures = frame.overview
        rows = figures.resources if figures else ()
        self._share_room(frame, max(1, len(rows)))
        height = self._heights.get("resources-panel", 0) - 1
        if self._is_new("resources", figures, right, height):
            self._resource_list.show(resource_lines(rows, right, height))
        self._show_fillers(frame, left)
        self._select_wanted(frame)

    def _folded_findings(self, frame: ScreenSnapshot) -> tuple[FoldedFinding, ...]:
        """The open findings, folded over nodes; again only after one changed."""
        if self._folded[0] is not frame.findings:
            self._folded = (frame.findings, fold_findings(frame.findings, frame.fleet.by_name))
        return self._folded[1]

    def _show_fillers(self, frame: ScreenSnapshot, left: int) -> None:
        """Trends and events: as many lines as their panels have; written again only if something in them changed."""
        trends, events = self._heights.get("trends-panel", 0) - 1, self._heights.get("events-panel", 0) - 1
        width = self._event_list.size.width - 1
        if trends > 0 and self._is_new("trends", frame.overview, left, trends):
            self._trend_list.show(trend_lines(_groups_of(frame), left, trends))
        if events > 0 and self._is_new("events", frame.events, frame.events.end, width, events):
            self._event_list.show(event_lines(frame.events, min(events, _EVENTS), width, events))

    def _is_new(self, part: str, *basis: object) -> bool:
        """Whether a part was last written from something else than `basis`."""
        is_new = self._written.get(part) != basis
        self._written[part] = basis
        return is_new

    @property
    def _column_widths(self) -> tuple[int, int]:
        """Cells of the left and the right column; both are all of the width where there is only one column."""
        room = self.size.width
        return (room - (room - _GUTTER) // 2 - _GUTTER, (room - _GUTTER) // 2) if self._is_wide else (room, room)

    @property
    def _is_wide(self) -> bool:
        return self.outer_size.width >= WIDE

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

    def _show_map(self, frame: ScreenSnapshot, width: int) -> None:
        """A cell for each GPU, or for each node where these do not fit the height of the view; the cursor stays."""
        names = tuple(node.name for node in frame.fleet.nodes)
        gpus = max((len(frame.gpus.of(name)) for name in names), default=0)
        chosen = self._chosen
        if len(names) < _MANY_NODES or lines_of_bars(names, gpus, width) <= self.size.height:
            self._cells = None
        elif self._cells is None:
            self._cells, chosen = NodeCells(), None
        rows = [self._heat_row(node, frame) for node in frame.fleet.nodes]
        cursor = None
        if self._cells is not None:
            rows = self._cells.lines(rows, width)
            cursor = self._cells.place(*chosen) if chosen is not None else (0, 0)
        self._heat.show(rows, self._metric.heat.scale, cursor)

    def _heat_row(self, node: NodeSummary, frame: ScreenSnapshot) -> HeatRow:
        """The row of a node; the previous one if nothing in it changed."""
        host = None
        now = frame.nodes.get(node.name)
        if not frame.gpus and now and now.host:
            host = now.host.seq
        is_cell = self._cells is not None and self._cells.opened != node.name
        gpus = frame.gpus.of(node.name)
        is_stale = node.fresh and bool(gpus) and all(gpu_stale_ns(gpu, now) is not None for gpu in gpus)
        basis = (
            frame.gpus.version(node.name), host, self._metric.name, self._peers, node.status, node.word, node.reason,
            is_cell, is_stale,
        )  # fmt: skip
        cached = self._rows.get(node.name)
        if cached is None or cached[0] != basis:
            if not frame.gpus:
                row = host_row(node, now)
            elif is_cell:
                cell = node_cell(node, gpus, self._metric, self._peers)
                row = HeatRow(node.name, node.status, (cell,), fresh=node.fresh)
            else:
                row = heat_row(node, gpus, self._metric, self._peers)
            if is_stale and node.status == "failed":
                row = msgspec.structs.replace(row, fresh=False)
            elif is_stale:
                row = msgspec.structs.replace(row, status="stale")
            cached = self._rows[node.name] = (basis, row)
        return cached[1]

    def _head(self, frame: ScreenSnapshot) -> None:
        has_cells = any(row.cells for _, row in self._rows.values())
        title, left = map_title(frame, self._metric, has_cells=has_cells, is_folded=self._cells is not None)
        self._heat_panel.head(title, left, self._under_cursor(frame))

    def _under_cursor(self, frame: ScreenSnapshot) -> tuple[Span, ...]:
        """Name and metrics of the cell under the cursor."""
        pointed = self._target(self._heat.pointed)
        if pointed is None:
            return ()
        node, place = pointed
        gpus = frame.gpus.of(node)
        row = self._rows[node][1] if node in self._rows else None
        if place == WHOLE_NODE and row is not None and row.cells:
            unit = self._metric.heat.unit if frame.gpus else "%"
            return (Span(f"{node} ", "muted"), Span(f"{row.cells[0].text} {unit}", "text"))
        if row is None or place >= len(row.cells):
            return (Span(node, "muted"),)
        if place >= len(gpus):
            return (Span(f"{node} ", "muted"), Span(f"{row.cells[place].text} %", "text"))
        return pointed_spans(node, gpus[place], self._metric, all_of_it=self._heat.size.width >= _ALL_FIGURES)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_again)  # a paused display gets no other frame

    def _share_room(self, frame: ScreenSnapshot, resources: int) -> None:
        """Place the panels: each as high as its lines, as far as there is room; the most important ones first."""
        top = self._verdict_list.line_count() if self._verdict_list.display else 0
        height, (left, right) = self.size.height - top, self._column_widths
        if self._is_new("height of the trends", frame.overview, left):
            groups = _groups_of(frame)
            self._trends_height = len(trend_lines(groups, left, trends_height(len(groups))))
        numbers, bars = lines_for_map(self._heat.rows, right - 1)
        wanted = {
            "jobs-panel": self._job_list.line_count(), "findings-panel": self._finding_list.line_count(),
            "nodes-panel": self._node_list.line_count(), "resources-panel": resources,
            "heat-panel": numbers if numbers <= height * _MAP_SHARE else bars,
            "trends-panel": self._trends_height, "events-panel": _EVENTS,
        }  # fmt: skip
        columns = fill_columns(wanted, height, wide=self._is_wide)
        placed = (tuple(tuple(column.items()) for column in columns), top, self.size)
        if placed == self._placed:
            return
        self._placed = placed
        self._heights = {id: lines for column in columns for id, lines in column.items()}
        for column, x, width in zip(columns, (0, left + _GUTTER), (left, right), strict=False):
            y = top
            for id, lines in column.items():
                panel = self._panels[id]
                panel.display = lines > 0
                panel.styles.height, panel.styles.width, panel.styles.offset = lines, width, (x, y)
                y += lines

    def action_metric(self) -> None:
        """Show the next metric in the map."""
        self._metric = HEAT_METRICS[(HEAT_METRICS.index(self._metric) + 1) % len(HEAT_METRICS)]
        self._peers = None
        self._show_again()

    def action_copy(self) -> None:
        """Copy the name of what is under the cursor."""
        self.console.clip.copy_names([self._name_under_cursor()])

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
    def _reports(self) -> tuple[LineReport, ...]:
        return (
            self._verdict_list, self._job_list, self._finding_list, self._trend_list, self._node_list,
            self._resource_list, self._event_list,
        )  # fmt: skip

    @property
    def _focused_list(self) -> LineReport | None:
        """The list with the focus, if something is under its cursor."""
        return next((report for report in self._reports if report.has_focus and report.selected is not None), None)

    @property
    def selected_row(self) -> str:
        """The name of the row or of the cell under the cursor; empty on the first cell of the map."""
        report, chosen = self._focused_list, self._chosen
        if report is not None:
            return row_name(report, report.selected)
        is_chosen = chosen is not None and self._heat.has_focus and not self._heat.is_at_first
        return cell_name(*chosen) if is_chosen and chosen is not None else ""

    def select_row(self, name: str) -> None:
        """Move the cursor to that row or cell, also if it is shown within `WAIT_S`; any other move ends the wait."""
        self._wanted_row, self._wanted_until, self._row_before = name, time.monotonic() + WAIT_S, self.selected_row
        self._show_again()

    def _select_wanted(self, frame: ScreenSnapshot) -> None:
        if not self._wanted_row:
            return
        row = find_row(self._reports, self._wanted_row)
        if row is not None:
            row[0].focus()
            row[0].select(row[1])
        elif not self._stand_in_map(frame) and time.monotonic() <= self._wanted_until:
            return
        self._wanted_row = ""

    def _stand_in_map(self, frame: ScreenSnapshot) -> bool:
        """Move the cursor to the wanted cell of the map; whether it is there."""
        cell = find_cell(self._wanted_row, frame.fleet.by_name)
        if cell is None or (self._cells is not None and cell.gpu != WHOLE_NODE and not frame.gpus.of(cell.node)):
            return False
        if self._cells is not None:
            self._wanted_row = ""  # opening a row draws again
            self._open_row(None if cell.gpu == WHOLE_NODE else cell.node)
            self._heat.stand(*self._cells.place(*cell))
        else:
            gpu = 0 if cell.gpu == WHOLE_NODE else cell.gpu
            row = next((y for y, row in enumerate(self._heat.rows) if row.node == cell.node), None)
            if row is None or (gpu and len(self._heat.rows[row].cells) <= gpu):
                return False
            self._heat.stand(row, gpu)
        self._heat.focus()
        return True

    def _name_under_cursor(self) -> str:
        """The name of the thing under the cursor."""
        report = self._focused_list
        if report is None:
            return self._chosen[0] if self._chosen is not None else ""
        has_findings = report in (self._verdict_list, self._finding_list)
        return thing_name(report.selected, self._frame, is_finding=has_findings)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if self.selected_row != self._row_before:  # else the mouse was moved over the map
            self._wanted_row = ""
        if self._frame is not None:
            self._head(self._frame)

    @property
    def _chosen(self) -> tuple[str, int] | None:
        """Node and GPU position under the cursor of the map; `WHOLE_NODE` on a cell that stands for a node."""
        return self._target(self._heat.selected)

    def _target(self, cell: tuple[str, int] | None) -> tuple[str, int] | None:
        """The node and GPU position of a cell of the map."""
        return cell if self._cells is None or cell is None else self._cells.target(*cell)

    def _open_row(self, node: str | None) -> None:
        """Show the GPUs of a node above the cells of all nodes; None closes them."""
        if self._cells is None or self._frame is None:
            return
        chosen = (node, 0) if node is not None else (self._cells.opened or "", WHOLE_NODE)
        self._cells.opened = node
        self._show_again()
        self._heat.stand(*self._cells.place(*chosen))

    def on_escape(self) -> bool:
        """Close the GPUs of the opened node."""
        if self._cells is None or self._cells.opened is None:
            return False
        self._open_row(None)
        return True

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        """Open the row of a node, the page of a node or a GPU; other details are shown in a dialog."""
        chosen = self._chosen
        if event.view is self._heat and chosen is not None and chosen[1] == WHOLE_NODE and self._has_row(chosen[0]):
            event.stop()
            self._open_row(chosen[0])
            return
        page = self._page_under_cursor(event.view)
        if page is not None:
            event.stop()
            self.open_page(*page)

    def _has_row(self, node: str) -> bool:
        """Whether the GPUs of a node can be opened as a row, and are not yet."""
        is_opened = self._cells is not None and self._cells.opened == node
        return self._frame is not None and bool(self._frame.gpus.of(node)) and not is_opened

    def _page_under_cursor(self, view: LineView) -> tuple[str, str | None] | None:
        """The node, or the node and the GPU, whose page Enter opens in this part."""
        node = self.selected_node
        gpu = self._chosen_gpu() if view is self._heat else None
        if gpu is not None:
            return gpu
        if node is not None and (view is self._node_list or (view is self._heat and self._is_bare(node))):
            return node, None
        chosen = view.selected
        if view is self._resource_list and isinstance(chosen, PageItem):
            return chosen.key if isinstance(chosen.key, tuple) else (str(chosen.key), None)
        if view is self._trend_list and isinstance(chosen, tuple) and chosen[0] == "class":
            return str(chosen[1]), None
        return None

    def _chosen_gpu(self) -> GpuKey | None:
        """The GPU under the cursor of the map."""
        chosen = self._chosen
        if self._frame is None or chosen is None:
            return None
        gpus = self._frame.gpus.of(chosen[0])
        return (chosen[0], uuid_of(gpus[chosen[1]])) if chosen[1] < len(gpus) else None

    def _is_bare(self, node: str | None) -> bool:
        """Whether the cursor is on a node without a GPU."""
        chosen = self._chosen
        return self._frame is None or chosen is None or chosen[1] >= len(self._frame.gpus.of(node or ""))

    def export_tables(self) -> Sequence[ExportTable]:
        """All GPUs, and those of the node under the cursor."""
        frame = self._frame
        if frame is None or not frame.gpus:
            return ()
        ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
        rows = GpuRows().rows(frame.fleet, frame.gpus, ranks, frame.findings, None, frame.nodes)
        columns = ("node", "gpu", "util", "mem", "power", "temp")
        tables = [ExportTable(f"GPUs: {KIND.counted(len(rows))}, by node", KIND, rows, columns)]
        chosen = self._chosen
        under = [row for row in rows if chosen is not None and row.summary.name == chosen[0]]
        if chosen is not None and under:
            tables.append(ExportTable(f"Selected: {KIND.counted(len(under))} of {chosen[0]}", KIND, under, columns))
        return tables

    @property
    def selected_node(self) -> str | None:
        """The node under the cursor of the list or the map."""
        if self._node_list.has_focus:
            return str(self._node_list.selected) if self._node_list.selected is not None else None
        chosen = self._resource_list.selected
        if self._resource_list.has_focus and isinstance(chosen, PageItem):
            return str(chosen.key[0] if isinstance(chosen.key, tuple) else chosen.key)
        return self._chosen[0] if self._heat.has_focus and self._chosen is not None else None

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
        for report in (self._trend_list, self._resource_list, self._event_list):
            if report.has_focus:
                return detail_of(report.selected)
        chosen = self._chosen
        return None if chosen is None else lambda frame: gpu_in(frame, *chosen) or node_in(frame, chosen[0])


def _groups_of(frame: ScreenSnapshot) -> Sequence[TrendGroup]:
    return frame.overview.groups if frame.overview is not None else ()
