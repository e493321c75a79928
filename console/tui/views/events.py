"""8 Events: one stream of everything that happened, the newest at the bottom."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from ...records import Record
from .. import figures
from ..models.events import EventRow, clock_ms, event_kind, event_story, is_of_node
from ..models.sheets import Sheet
from ..models.spans import Span, plain
from ..models.stories import Story
from ..models.tables import counted, event_sheet
from ..watch import Frame
from ..widgets.bar import Bar
from ..widgets.line_view import LineView
from ..widgets.record_grid import Column
from ..widgets.report import Report
from ..widgets.stream import Stream
from .base import Teller, View


def _our_time(row: EventRow) -> Span:
    rx = row.record.rx
    return Span(figures.clock_time(rx) if rx else figures.UNKNOWN, "muted")


def _node_time(row: EventRow) -> Span:
    """The node's own clock; a fact of the console's has none."""
    return Span(clock_ms(row.record.t) if is_of_node(row.record) else figures.UNKNOWN, "muted")


#: At 80 cells: time, age, severity, node, what happened; with more room also the kind and the node's clock.
COLUMNS: tuple[Column[EventRow], ...] = (
    Column("time", "time", 8, _our_time, 2),
    Column("node_time", "node's clock", 12, _node_time, 5),
    Column("age", "age", 6, lambda row: Span(row.age, "muted"), 3, align="right"),
    Column("severity", "", 1, lambda row: row.mark),
    Column("node", "node", 8, lambda row: Span(row.node, "text" if row.record.node else "muted"), 1, grow=6),
    Column("kind", "kind", 12, lambda row: Span(event_kind(row.record), "muted"), 4),
    Column("text", "what happened", 34, lambda row: row.span, grow=400),
)


class Events(View):
    """The stream, and a line that says whether it follows."""

    scope = "events"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._stream: Stream[EventRow] = Stream(COLUMNS, id="stream")
        self._nothing = Report(id="no-events")
        self._state = Bar(fill="─")
        self._frame: Frame | None = None

    def compose(self) -> ComposeResult:
        yield self._state
        yield self._nothing
        yield self._stream

    def home(self) -> Stream[EventRow]:
        return self._stream

    def look(self, frame: Frame) -> None:
        self._frame = frame
        rows = frame.events.rows(frame.now)
        self._nothing.display, self._stream.display = not rows, bool(rows)
        if not rows:
            self._nothing.show((plain("nothing has happened yet", "muted"),))
        self._stream.extend(rows, rows.first)
        self._head()

    def _head(self) -> None:
        if self._frame is None:
            return
        count = figures.count(self._frame.events.end)
        left = (Span("─ ", "rule"), Span("EVENTS", "accent"), Span(f" {count} ", "muted"))
        if self._stream.following:
            self._state.show(left, (Span(" following ", "ok"), Span("─", "rule")))
        else:
            below = f"{figures.count(self._stream.behind)} below" if self._stream.behind else "held"
            right = (Span(f" {below}  ", "warning"), Span("G", "key"), Span(" follows ", "muted"), Span("─", "rule"))
            self._state.show(left, right)

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self._head()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.call_after_refresh(self._head)

    def on_resize(self, event: events.Resize) -> None:
        if self._frame is not None:
            self.call_after_refresh(self.look, self._frame)

    def sheets(self) -> Sequence[Sheet]:
        rows, chosen = self._stream.rows, self._stream.selected
        found = [event_sheet(f"Events: {counted('event', len(rows))}, oldest first", rows)] if rows else []
        if chosen is not None:
            found.append(event_sheet(f"Selected: {counted('event', 1)}", [chosen]))
        return found

    @property
    def selected_node(self) -> str | None:
        row = self._stream.selected
        return (row.record.node or None) if row else None

    def teller(self) -> Teller | None:
        row = self._stream.selected
        if row is None:
            return None
        record = row.record
        return lambda frame: _tell(frame, record)


def _tell(frame: Frame, record: Record) -> Story:
    return event_story(record, frame.now)
