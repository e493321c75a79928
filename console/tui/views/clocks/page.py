"""The page of one node's clock: what is known of it, its edges, its past. Part of the Clocks view."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult

from ....present.clocks import state_text
from ....present.spans import Span
from ....text.cells import clean
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.history import HistoryPlot
from ...widgets.report import LineReport
from ..base import DetailProvider
from ..gpus.plots import is_known
from ..paged_list import DetailPage
from .page_model import fact_lines_of, offset_plot

#: From this height on the curve of the offset stands above the facts.
TALL = 30
_EDGE = Span("─ ", "rule")


class ClockPage(DetailPage[str]):
    """`show_snapshot` shows the clock of the node named `key`."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._title = Bar(fill="─")
        self._curve = HistoryPlot(id="clock-curve")
        self._facts = LineReport(id="clock-facts")
        self._shown: object = None
        self._frame: ScreenSnapshot | None = None

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._curve
        yield self._facts

    def set_key(self, key: str | None) -> None:
        self.key, self._shown = key, None
        self._facts.show(())
        self._facts.scroll_home(animate=False, immediate=True)

    def initial_focus(self) -> LineReport:
        return self._facts

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Show this frame; nothing is made anew where nothing of the clock changed."""
        self._frame = frame
        if self.key is None:
            return
        row = next((candidate for candidate in frame.clocks.rows if candidate.node == self.key), None)
        basis = (self.key, self.size, row)
        if basis == self._shown:
            return
        self._shown = basis
        if row is None:
            self._title.show((_EDGE, Span(clean(self.key), "strong"), Span(" no clock data any more ", "muted")))
            return
        state = Span(f" {state_text(row)} ", row.status)
        back = (Span(" Esc", "key"), Span(" back ─", "muted"))
        self._title.show((_EDGE, Span(clean(row.node), "accent"), state), back)
        plot = offset_plot(row)
        self._curve.display = self.size.height >= TALL and is_known(plot) and len(row.past) > 1
        self._curve.show(plot, row.version)
        self._facts.show(fact_lines_of(row, max(20, self.size.width - 3)))

    def on_resize(self, event: events.Resize) -> None:
        if self._frame is not None:
            self.call_after_refresh(self.show_snapshot, self._frame)

    def detail_provider(self) -> DetailProvider | None:
        return None
