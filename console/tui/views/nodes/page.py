"""The page of one node: everything known of it, in one column or two. Part of the Nodes view."""

from __future__ import annotations

from typing import cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from ....core.store import ProcessKey
from ....present.spans import Line, Span
from ...models import detail
from ...models.page import PageItem
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.report import LineReport
from ..base import DetailProvider
from ..events.model import event_detail
from ..paged_list import DetailPage
from .model import state_text
from .page_model import EVENTS_SHOWN, NodePageData, facts_lines, list_lines, process_detail

#: From this width on the facts stand beside the lists.
WIDE = 130
#: Cells beside the text: a margin and the scrollbar.
_BESIDE = 3
_EDGE = Span("─ ", "rule")


class NodePage(DetailPage[str]):
    """`show_snapshot` shows the node named `key`."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._title = Bar(fill="─")
        self.facts, self._lists = LineReport(id="node-facts"), LineReport(id="node-lists")
        self._shown: object = None
        self._frame: ScreenSnapshot | None = None

    def compose(self) -> ComposeResult:
        yield self._title
        yield Horizontal(self.facts, self._lists)

    def set_key(self, key: str | None) -> None:
        self.key, self._shown = key, None
        for report in (self.facts, self._lists):
            report.show(())
            report.scroll_home(animate=False, immediate=True)

    def initial_focus(self) -> LineReport:
        return self.facts

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Show this frame; nothing is made anew where nothing of the node changed."""
        self._frame = frame
        if self.key is None:
            return
        now = frame.nodes.get(self.key)
        records = (now.state, now.node, now.host, now.cost) if now else ()
        basis = (
            self.key, self.size, tuple(record and (record.agent, record.seq) for record in records),
            frame.now // 1_000_000_000, frame.events.end, id(frame.jobs), frame.fleet.by_name.get(self.key),
        )  # fmt: skip
        if basis != self._shown:
            self._shown = basis
            self._write(frame, self.key)

    def _write(self, frame: ScreenSnapshot, name: str) -> None:
        data = _known(frame, name)
        if data is None:
            self._title.show((_EDGE, Span(name, "strong"), Span(" node was removed ", "muted")))
            return
        state = Span(f" {state_text(data.summary)} ", data.summary.status)
        self._title.show((_EDGE, Span(name, "accent"), state), (Span(" Esc", "key"), Span(" back ─", "muted")))
        width = (self.size.width // 2 if self._is_wide else self.size.width) - _BESIDE
        facts, lists = facts_lines(data, width), list_lines(data, width)
        self.facts.show(facts if self._is_wide else (*facts, Line(), *lists))
        self._lists.show(lists if self._is_wide else ())

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= WIDE

    def on_resize(self, event: events.Resize) -> None:
        self._lists.display = self._is_wide
        if self._frame is not None:
            self.call_after_refresh(self._write_again)

    def _write_again(self) -> None:
        self._shown = None
        if self._frame is not None:
            self.show_snapshot(self._frame)

    def detail_provider(self) -> DetailProvider | None:
        """The story of the line under the cursor; a fact is told by its own line."""
        report = self._lists if self._lists.has_focus else self.facts
        thing, node = report.selected, self.key
        if node is None or not isinstance(thing, PageItem) or thing.kind == "fact":
            return None
        return lambda frame: _detail(frame, node, thing)


def _known(frame: ScreenSnapshot, name: str) -> NodePageData | None:
    summary = frame.fleet.by_name.get(name)
    if summary is None:
        return None
    ranks = [row for job in frame.jobs.jobs for row in job.rows if row.rank and row.rank.node == name]
    processes = [process for process in frame.processes.values() if process.node == name]
    processes.sort(key=lambda process: (process.role, process.pid))
    return NodePageData(
        summary, frame.now, frame.nodes.get(name), frame.gpus.of(name), ranks, processes,
        frame.events.of_node(name, EVENTS_SHOWN),
    )  # fmt: skip


def _detail(frame: ScreenSnapshot, name: str, thing: PageItem) -> detail.Detail | None:
    provide = {"gpu": _gpu_detail, "rank": _rank_detail, "process": _process_detail, "event": _event_detail}[thing.kind]
    return provide(frame, name, thing.key)


def _gpu_detail(frame: ScreenSnapshot, name: str, uuid: object) -> detail.Detail | None:
    summary = frame.fleet.by_name.get(name)
    for gpu in frame.gpus.of(name):
        record = gpu.info or gpu.gpu
        if summary is not None and record is not None and record.uuid == uuid:
            return detail.gpu_detail(summary, gpu)
    return None


def _rank_detail(frame: ScreenSnapshot, name: str, key: object) -> detail.Detail | None:
    for row in (row for job in frame.jobs.jobs for row in job.rows):
        if row.rank is not None and row.key == key:
            process = frame.processes.get((row.rank.node, row.rank.pid, row.rank.start_ticks))
            return detail.rank_detail(row, process.cmdline if process else None)
    return None


def _process_detail(frame: ScreenSnapshot, name: str, key: object) -> detail.Detail | None:
    process = frame.processes.get(cast(ProcessKey, key))
    return process_detail(process) if process else None


def _event_detail(frame: ScreenSnapshot, name: str, number: object) -> detail.Detail | None:
    record = frame.events.find(cast(int, number))
    return event_detail(record, frame.now) if record else None
