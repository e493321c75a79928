"""n Nodes: one row per node; Enter opens the page of one, with everything about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from ....core.store import ProcessKey
from ....present.spans import Line, Span, plain
from ...models.detail import Detail, PageItem
from ...snapshot import ScreenSnapshot
from ...widgets.line_view import LineReport
from ...widgets.record_grid import GridColumn, RecordGrid
from ..base import DetailProvider, event_in, gpu_in, rank_in
from ..list_view import column
from ..paged_list import BESIDE, DetailPage, PagedListView
from .model import FIELDS, KIND, NodeRow, node_rows, state_text
from .page_model import EVENTS_SHOWN, NodePageData, facts_lines, list_lines, process_detail

#: In screen order. At 80 cells: state, node, CPU, memory, I/O stall, network, GPUs, ranks, agent.
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
    """The grid, or the page of one node."""

    scope = "nodes"
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        grid: RecordGrid[Any] = RecordGrid(COLUMNS, id="node-grid")
        super().__init__(grid, NodePage(id="node-page"), id=id)

    def node_of(self, row: NodeRow) -> str | None:
        """The node itself."""
        return row.summary.name

    @property
    def selected_node(self) -> str | None:
        """The node of the page, or of the row under the cursor."""
        return self.selected_key

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The nodes, and the ranks on them."""
        return (frame.fleet, frame.jobs)

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[NodeRow]:
        """One row per node."""
        return node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)

    def count(self, frame: ScreenSnapshot) -> int:
        """Number of nodes."""
        return len(frame.fleet.nodes)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """How to add a node."""
        return (plain("No nodes configured."), plain("Add one with the command palette (Ctrl-P).", "muted"))


class NodePage(DetailPage[NodeRow, str]):
    """One node: its facts and, beside or below them, its checks, GPUs, ranks, processes and events."""

    wide_from: ClassVar[int] = 130
    gone_text = "node was removed"

    def __init__(self, *, id: str) -> None:
        self.facts, self._lists = LineReport(id="node-facts"), LineReport(id="node-lists")
        super().__init__(self.facts, self._lists, id=id)

    def compose(self) -> ComposeResult:
        yield self._title
        yield Horizontal(self.facts, self._lists)

    def _basis(self, frame: ScreenSnapshot, row: NodeRow) -> tuple[object, ...]:
        now = frame.nodes.get(row.key)
        records = (now.state, now.node, now.host, now.cost) if now else ()
        return (
            tuple(record and (record.agent, record.seq) for record in records), row.summary,
            frame.second, frame.events.end, id(frame.jobs),
        )  # fmt: skip

    def _write(self, frame: ScreenSnapshot, row: NodeRow) -> None:
        data = page_data(frame, row.key)
        assert data is not None
        self._write_title(row.key, Span(f" {state_text(data.summary)} ", data.summary.status))
        width = (self.size.width // 2 if self._is_wide else self.size.width) - BESIDE
        facts, lists = facts_lines(data, width), list_lines(data, width)
        self.facts.show(facts if self._is_wide else (*facts, Line(), *lists))
        self._lists.show(lists if self._is_wide else ())

    def on_resize(self, event: events.Resize) -> None:
        self._lists.display = self._is_wide

    def detail_provider(self) -> DetailProvider | None:
        """Details of the line under the cursor; facts have none."""
        report = self._lists if self._lists.has_focus else self.facts
        item, node = report.selected, self.key
        if node is None or not isinstance(item, PageItem) or item.kind == "fact":
            return None
        return lambda frame: _detail(frame, node, item)


def page_data(frame: ScreenSnapshot, name: str) -> NodePageData | None:
    """Everything about a node in this frame; None once it is gone."""
    summary = frame.fleet.by_name.get(name)
    if summary is None:
        return None
    ranks = [row for job in frame.jobs.jobs for row in job.rows if row.rank and row.rank.node == name]
    processes = [process for process in frame.processes.values() if process.node == name]
    processes.sort(key=lambda process: (process.role, process.pid))
    return NodePageData(
        summary, frame.now, frame.nodes.get(name), frame.gpus.of(name), ranks, processes,
        frame.events.of_node(name, EVENTS_SHOWN), frame.checks.of(name, frame.now),
    )  # fmt: skip


def _detail(frame: ScreenSnapshot, node: str, item: PageItem) -> Detail | None:
    match item.kind:
        case "gpu":
            return gpu_in(frame, node, uuid=item.key)
        case "rank":
            return rank_in(frame, item.key)
        case "process":
            process = frame.processes.get(cast(ProcessKey, item.key))
            return process_detail(process) if process else None
    return event_in(frame, cast(int, item.key))
