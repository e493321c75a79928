"""The page of one GPU: every figure in words, and its curves beside or above them. Part of the GPUs view."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ....core.store import GpuKey
from ....present.spans import Span
from ....present.status import GLYPHS, state_word
from ....records import Finding, GpuEvent, Record
from ...models.detail import Detail
from ...models.page import PageItem
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.history import HistoryPlot
from ...widgets.report import LineReport
from ..base import DetailProvider
from ..events.model import EventRow, event_detail
from ..paged_list import DetailPage
from .model import GpuRow
from .page_model import EVENTS_SHOWN, GpuPageData, page_lines
from .plots import PLOT_METRICS, is_known, plot_of

#: From this width on the curves stand beside the figures, else one of them above.
WIDE = 110
#: Lines of one curve.
_CURVE = 8
#: Cells beside the text: a margin and the scrollbar.
_BESIDE = 3
_EDGE = Span("─ ", "rule")


class GpuPage(DetailPage[GpuKey]):
    """`show_snapshot` shows the GPU of `key` as that row."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._title = Bar(fill="─")
        self.report = LineReport(id="gpu-facts")
        self._curves = [HistoryPlot(classes="gpu-curve") for _ in PLOT_METRICS]
        self._first = 0  # of the figures that are drawn
        self._hour = False
        self._seen: tuple[ScreenSnapshot, GpuRow | None] | None = None
        self._shown: object = None

    def compose(self) -> ComposeResult:
        yield self._title
        with Container(id="gpu-body"):
            yield Vertical(*self._curves, id="gpu-curves")
            yield self.report

    def set_key(self, key: GpuKey | None) -> None:
        self.key, self._shown, self._seen = key, None, None
        self.report.show(())
        self.report.scroll_home(animate=False, immediate=True)

    def initial_focus(self) -> LineReport:
        return self.report

    def next_figure(self) -> None:
        """Draw the next figure; where several are drawn, begin with it."""
        self._first = (self._first + 1) % len(PLOT_METRICS)
        self._again()

    def turn_span(self) -> None:
        """Five minutes, or the hour."""
        self._hour = not self._hour
        self._again()

    def show_snapshot(self, frame: ScreenSnapshot, row: GpuRow | None) -> None:
        """Show this frame; nothing is made anew where nothing of the GPU changed."""
        self._seen = (frame, row)
        if self.key is None:
            return
        version = row.version if row else None
        second = frame.now // 1_000_000_000
        basis = (self.key, self.size, version, second, frame.events.end, self._first, self._hour)
        if basis != self._shown:
            self._shown = basis
            self._write(frame, row, second)

    def _write(self, frame: ScreenSnapshot, row: GpuRow | None, second: int) -> None:
        assert self.key is not None
        if row is None:
            self._title.show((_EDGE, Span(self.key[0], "strong"), Span(" GPU removed ", "muted")))
            return
        status, word = row.row_state
        state = Span(f" {GLYPHS[status]} {state_word(word)} ", status)
        self._title.show((_EDGE, Span(f"{row.summary.name} gpu{row.index}", "accent"), state),
                         (Span(" Esc", "key"), Span(" back ─", "muted")))  # fmt: skip
        width = (self.size.width * 3 // 5 if self._is_wide else self.size.width) - _BESIDE
        self.report.show(page_lines(_known(frame, row), width))
        self._draw_curves(frame, row, second)

    def _draw_curves(self, frame: ScreenSnapshot, row: GpuRow, second: int) -> None:
        """As many as there is room for, from the chosen one on; figures that were never told are left out."""
        room = max(1, (self.size.height - 1) // _CURVE) if self._is_wide else 1
        plots = []
        for figure in (*PLOT_METRICS[self._first :], *PLOT_METRICS[: self._first]) if frame.history else ():
            assert frame.history is not None
            plot = plot_of(frame.history, row.key, figure, row.info, hour=self._hour)
            if is_known(plot):
                plots.append(plot)
            if len(plots) == room:
                break
        for index, curve in enumerate(self._curves):
            curve.display = index < len(plots)
            if index < len(plots):
                curve.show(plots[index], (row.key, second, plots[index].title, self._hour, row.gpu and row.gpu.seq))

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= WIDE

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(self._is_wide, "wide")
        self.call_after_refresh(self._again)

    def _again(self) -> None:
        self._shown = None
        if self._seen is not None:
            self.show_snapshot(*self._seen)

    def detail_provider(self) -> DetailProvider | None:
        """The story of an event under the cursor; all else is told by its own line."""
        thing = self.report.selected
        if not isinstance(thing, PageItem) or thing.kind != "event" or not isinstance(thing.key, int):
            return None
        number = thing.key

        def detail(frame: ScreenSnapshot) -> Detail | None:
            record = frame.events.find(number)
            return event_detail(record, frame.now) if record else None

        return detail


def _known(frame: ScreenSnapshot, row: GpuRow) -> GpuPageData:
    processes = [process for process in frame.gpu_processes.values() if (process.node, process.uuid) == row.key]
    links = [link for link in frame.gpu_links.values() if (link.node, link.uuid) == row.key]
    return GpuPageData(
        row, sorted(processes, key=lambda process: -(process.mem_used_bytes or 0)),
        sorted(links, key=lambda link: link.link),
        [EventRow(number, record, frame.now) for number, record in frame.events.newest(_about(row), EVENTS_SHOWN)],
    )  # fmt: skip


def _about(row: GpuRow) -> Callable[[Record], bool]:
    """Whether an event is one of this GPU, or blames it."""

    def is_about(record: Record) -> bool:
        if isinstance(record, GpuEvent):
            return (record.node, record.uuid) == row.key
        return isinstance(record, Finding) and row.name in record.culprits

    return is_about
