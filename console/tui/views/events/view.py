"""8 Events: the event log, newest at the bottom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from textual import events
from textual.app import ComposeResult

from ....present.spans import Line, Span, plain
from ....records.kinds import kind_of
from ....text import format
from ....text.cells import clean
from ...models.grouping import GroupHeader, grouped
from ...models.list_kind import row_predicate
from ...models.numbered_log import LogFilter
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.line_view import LineView
from ...widgets.record_grid import GridColumn, Stream
from ..base import EDGE, DetailProvider, follow_spans
from ..list_view import ListView, column, row_context
from .columns import FIELDS, KIND
from .model import EventRow, event_detail

#: At 80 cells: time, age, severity, node, event; on wider screens also the kind and the node's clock.
COLUMNS: tuple[GridColumn[EventRow], ...] = (
    column(FIELDS["time"], 8, 2),
    column(FIELDS["node_time"], 12, 5),
    column(FIELDS["age"], 6, 3, right=True),
    column(FIELDS["severity"], 1),
    column(FIELDS["node"], 8, 1, grow=6),
    column(FIELDS["kind"], 12, 4),
    column(FIELDS["text"], 34, grow=400),
)
#: Seconds between two updates of a sorted or grouped list, which is sorted as a whole.
_EVERY_S: Final = 0.5


class EventsView(ListView[EventRow]):
    """A stream that follows new events; sorted or grouped, a list like any other."""

    scope = "events"
    kind, columns = KIND, COLUMNS
    exports_record_fields = False

    def __init__(self, *, id: str) -> None:
        self._stream: Stream[GroupHeader | EventRow] = Stream(COLUMNS, id="stream")  # type: ignore[arg-type]
        super().__init__(self._stream, id=id)
        self._state = Bar(fill="─")
        self._passing: LogFilter[EventRow] = LogFilter(None)
        self._entries: Sequence[int | GroupHeader] = ()  # of a list: numbers of events, and headers
        self._listed = (0, -1, 0.0)  # first and end of the listed events, and when they may be listed again

    def compose(self) -> ComposeResult:
        yield self._state
        yield self._filter
        yield self._nothing
        yield self._stream

    @property
    def _is_stream(self) -> bool:
        """Whether the events are in the order they arrived."""
        ungrouped = self.kind.grouping(self._arranged.group).value is None
        return ungrouped and self._sort == self.kind.sort and not self._arranged.reverse

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Add new events; test all of them again if tags they are filtered or grouped by changed."""
        self._frame = frame
        if self._tags(frame) != self._drawn_from:
            self.redraw()
        else:
            self._draw(frame)

    def redraw(self) -> None:
        """Test, sort and group all events again."""
        frame = self._frame
        if frame is None:
            return
        self._drawn_from = self._tags(frame)
        self._passing = LogFilter(row_predicate(self._filter.wanted, row_context(frame)))
        self._listed = (0, -1, 0.0)
        followed = self._stream.following
        self._stream.begin()
        self._draw(frame)
        if not self._is_stream and followed:  # in another order the end is not the newest
            self._stream.action_top()
            self._stream.following = False

    def _tags(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The tags of all nodes if filter or grouping depend on them: events themselves never change."""
        fields = {term.field.name if term.field else "" for term in self._filter.wanted.terms}
        if not fields & {"tag", ""} and self._arranged.group != "tag":
            return ()
        return tuple((name, now.state.tags) for name, now in frame.nodes.items() if now.state and now.state.tags)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[EventRow]:
        """One row per kept event."""
        return list(map(frame.events.row, frame.events.numbers))

    def count(self, frame: ScreenSnapshot) -> int:
        """Number of kept events."""
        return len(frame.events.items)

    def _draw(self, frame: ScreenSnapshot) -> None:
        numbers = self._passing.update(frame.events)
        if self._is_stream:
            rows = frame.events.rows(frame.now, numbers)
            self._stream.extend(rows, self._passing.gone, self._sort)
        else:
            rows = frame.events.rows(frame.now, self._list_entries(frame, numbers))
            self._stream.show(rows, self._sort, self._arranged.reverse)
        if self._filter.wanted:
            self._filter.count(len(numbers), self.count(frame), "events")
        self._show_empty_text(rows, self.count(frame), frame)
        self._draw_state()

    def _list_entries(self, frame: ScreenSnapshot, numbers: Sequence[int]) -> Sequence[int | GroupHeader]:
        """The events that pass, sorted and grouped; the previous list if there are no new events or it is recent."""
        log, now = frame.events, time.monotonic()
        first, end, due = self._listed
        if first == log.first and (end == log.end or now < due):
            return self._entries
        self._listed = (log.first, log.end, now + _EVERY_S)
        field = FIELDS[self._sort]
        rows = self._steady.sorted(list(map(log.row, numbers)), field.order, field.noise, self._arranged.reverse)
        by = self.kind.grouping(self._arranged.group)
        listed = grouped(rows, by, row_context(frame), self.kind.noun, self.kind.row_state)
        self._entries = [row if isinstance(row, GroupHeader) else row.key for row in listed]
        return self._entries

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """That there are none."""
        return (plain("no events yet", "muted"),)

    def _draw_state(self) -> None:
        if self._frame is None:
            return
        count = format.count(self._frame.events.end)
        order = (Span(f" {self._order_text()} ", "muted"), Span("─", "rule"))
        right = follow_spans(self._stream) if self._is_stream else order
        self._state.show((EDGE, Span("EVENTS", "accent"), Span(f" {count} ", "muted")), right)

    def _order_text(self) -> str:
        by = self.kind.grouping(self._arranged.group)
        grouped_by = f"grouped by {by.name}, " if by.value else ""
        return f"{grouped_by}sorted by {FIELDS[self._sort].title or self._sort}"

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self._draw_state()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.call_after_refresh(self._draw_state)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_again)

    def row_name(self, row: EventRow) -> str:
        """The node, its instant and the kind: numbers of events are of one console only."""
        return clean(f"{row.record.node}/{row.record.t}/{kind_of(row.record)}")

    @property
    def selected_row(self) -> str:
        """The event under the cursor; none while the cursor follows the newest."""
        return "" if self._stream.following and self._is_stream else super().selected_row

    @property
    def selected_node(self) -> str | None:
        """The node of the event or the group under the cursor."""
        row = self._stream.selected
        if isinstance(row, GroupHeader):
            return row.node if row.node != "console" else None
        return (row.record.node or None) if row else None

    def detail_provider(self) -> DetailProvider | None:
        """Details of the event under the cursor."""
        row = self._stream.selected
        if not isinstance(row, EventRow):
            return None
        record = row.record
        return lambda frame: event_detail(record, frame.now)
