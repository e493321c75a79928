"""8 Events: one stream of what happened, the newest at the bottom; sorted or grouped, a list like any other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from textual import events
from textual.app import ComposeResult

from ....present.spans import Line, Span, plain
from ....records import Record
from ....text import format
from ...models.detail import Detail
from ...models.grouping import GroupHeader, grouped
from ...models.list_kind import row_predicate
from ...snapshot import ScreenSnapshot
from ...widgets.bar import Bar
from ...widgets.line_view import LineView
from ...widgets.record_grid import GridColumn
from ...widgets.stream import Stream
from ..base import DetailProvider
from ..list_view import ListView, column, row_context
from .columns import FIELDS, KIND, EventFilter, FilteredEvents, events_of
from .model import EventRow, event_detail

#: At 80 cells: time, age, severity, node, what happened; with more room also the kind and the node's clock.
COLUMNS: tuple[GridColumn[EventRow], ...] = (
    column(FIELDS["time"], 8, 2),
    column(FIELDS["node_time"], 12, 5),
    column(FIELDS["age"], 6, 3, right=True),
    column(FIELDS["severity"], 1),
    column(FIELDS["node"], 8, 1, grow=6),
    column(FIELDS["kind"], 12, 4),
    column(FIELDS["text"], 34, grow=400),
)
#: A list in another order than that of time takes in what is new this often, in seconds: it is sorted as a whole.
_EVERY_S: Final = 0.5


class EventsView(ListView[EventRow]):
    """The stream, and a line that says whether it follows."""

    scope = "events"
    kind, columns = KIND, COLUMNS
    flattens_records = False

    def __init__(self, *, id: str) -> None:
        self._stream: Stream[GroupHeader | EventRow] = Stream(COLUMNS, id="stream")  # type: ignore[arg-type]
        super().__init__(self._stream, id=id)
        self._state = Bar(fill="─")
        self._sieve = EventFilter(None)
        self._entries: Sequence[int | GroupHeader] = ()  # of a list: numbers of events, and heads
        self._listed = (0, -1, 0.0)  # of which events the list is, from and up to, and when it may be made anew

    def compose(self) -> ComposeResult:
        yield self._state
        yield self._filter
        yield self._nothing
        yield self._stream

    def initial_focus(self) -> Stream[GroupHeader | EventRow]:
        return self._stream

    # -- the rows ----------------------------------------------------------------------------------------------------

    @property
    def _is_stream(self) -> bool:
        """Whether the events stand as they come."""
        ungrouped = self.kind.grouping(self._arranged.group).value is None
        return ungrouped and self._sort == self.kind.sort and not self._arranged.reverse

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        self._frame = frame
        if self._tags(frame) != self._dependencies:
            self.redraw()
        else:
            self._draw(frame)

    def redraw(self) -> None:
        """Another filter, order or grouping, or a node has other tags: every event is looked at anew."""
        frame = self._frame
        if frame is None:
            return
        self._dependencies = self._tags(frame)
        self._sieve = EventFilter(row_predicate(self._filter.wanted, row_context(frame)))
        self._listed = (0, -1, 0.0)
        followed = self._stream.following
        self._stream.begin()
        self._draw(frame)
        if not self._is_stream and followed:  # the newest was looked at because it is the newest: that is over
            self._stream.action_top()
            self._stream.following = False

    def _tags(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The tags of all nodes, where what is shown depends on them: all else of an event never changes."""
        fields = {term.field.name if term.field else "" for term in self._filter.wanted.terms}
        if not fields & {"tag", ""} and self._arranged.group != "tag":
            return ()
        return tuple((name, now.state.tags) for name, now in frame.nodes.items() if now.state and now.state.tags)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[EventRow]:
        return events_of(frame.events, range(frame.events.first, frame.events.end))

    def count(self, frame: ScreenSnapshot) -> int:
        return len(frame.events.records)

    def _draw(self, frame: ScreenSnapshot) -> None:
        log, passing_now = frame.events, self._sieve.update(frame.events)
        rows: Sequence[GroupHeader | EventRow]
        if self._is_stream:
            is_all = not self._filter.wanted
            rows = log.rows(frame.now) if is_all else FilteredEvents(log, passing_now, frame.now)
            self._stream.extend(rows, self._sieve.gone, self._sort)
        else:
            rows = FilteredEvents(log, self._listed_now(frame, passing_now), frame.now)
            self._stream.show(rows, self._sort, self._arranged.reverse)
        if self._filter.wanted:
            self._filter.count(len(passing_now), self.count(frame), "events")
        self._show_empty_text(rows, self.count(frame), frame)
        self._head()

    def _listed_now(self, frame: ScreenSnapshot, numbers: Sequence[int]) -> Sequence[int | GroupHeader]:
        """The events that pass, sorted and grouped; the last list, while nothing is new or it is hardly old."""
        log, now = frame.events, time.monotonic()
        first, end, due = self._listed
        if first == log.first and (end == log.end or now < due):
            return self._entries
        self._listed = (log.first, log.end, now + _EVERY_S)
        field = FIELDS[self._sort]
        rows = self._steady.sorted(events_of(log, numbers), field.order, field.noise, self._arranged.reverse)
        by = self.kind.grouping(self._arranged.group)
        listed = grouped(rows, by, row_context(frame), self.kind.noun, self.kind.row_state)
        self._entries = [row if isinstance(row, GroupHeader) else row.number for row in listed]
        return self._entries

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        return (plain("no events yet", "muted"),)

    # -- the line above ----------------------------------------------------------------------------------------------

    def _head(self) -> None:
        if self._frame is None:
            return
        count = format.count(self._frame.events.end)
        left = (Span("─ ", "rule"), Span("EVENTS", "accent"), Span(f" {count} ", "muted"))
        if not self._is_stream:
            self._state.show(left, (Span(f" {self._order_text()} ", "muted"), Span("─", "rule")))
        elif self._stream.following:
            self._state.show(left, (Span(" following ", "ok"), Span("─", "rule")))
        else:
            below = f"{format.count(self._stream.behind)} newer" if self._stream.behind else "paused"
            right = (Span(f" {below}  ", "warning"), Span("G", "key"), Span(" follow ", "muted"), Span("─", "rule"))
            self._state.show(left, right)

    def _order_text(self) -> str:
        by = self.kind.grouping(self._arranged.group)
        grouped_by = f"grouped by {by.name}, " if by.value else ""
        return f"{grouped_by}sorted by {FIELDS[self._sort].title or self._sort}"

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        self._head()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.call_after_refresh(self._head)

    def on_resize(self, event: events.Resize) -> None:
        if self._frame is not None:
            self.call_after_refresh(self.show_snapshot, self._frame)

    # -- what is under the cursor ------------------------------------------------------------------------------------

    @property
    def selected_node(self) -> str | None:
        row = self._stream.selected
        if isinstance(row, GroupHeader):
            return row.node if row.node != "console" else None
        return (row.record.node or None) if row else None

    def detail_provider(self) -> DetailProvider | None:
        row = self._stream.selected
        if not isinstance(row, EventRow):
            return None
        record = row.record
        return lambda frame: _detail(frame, record)


def _detail(frame: ScreenSnapshot, record: Record) -> Detail:
    return event_detail(record, frame.now)
