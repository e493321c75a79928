"""The Events view as a list: its columns, its groups, and the events that pass, followed as they come."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....records import Mark
from ....text import format
from ....text.nodeset_fold import natural
from ...models.grouping import NONE, GroupHeader, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field
from ...models.row import RowState
from .filter import EVENTS
from .model import EventLog, EventRow, event_kind, event_status, event_text, is_of_node, severity_word

#: Ten thousand events are of a few hundred nodes.
_natural = lru_cache(4096)(natural)


def _quiet(row: EventRow, text: str) -> str:
    return "muted"


def _node_time(row: EventRow) -> int | None:
    """The node's own clock; a fact of the console's has none."""
    return (row.record.t or None) if is_of_node(row.record) else None


def _severity(row: EventRow) -> tuple[int, bool]:
    """The worst first; then what a person wrote, then what needs nobody's attention."""
    status = event_status(row.record)
    return (BY_WEIGHT.index(status) if status else len(BY_WEIGHT), not isinstance(row.record, Mark))


FIELDS: dict[str, ColumnField[EventRow]] = {
    column.key: column
    for column in (
        ColumnField("time", "time", lambda row: format.clock_time(row.record.rx), lambda row: row.number, _quiet),
        column_field("node_time", "node time", _node_time, format.clock_time_ms, _quiet),
        ColumnField("age", "age", lambda row: row.age, lambda row: -row.number, _quiet),
        ColumnField("severity", "", lambda row: row.mark.text, _severity, lambda row, _: row.mark.style),
        ColumnField("node", "node", lambda row: row.node, lambda row: _natural(row.node), lambda row,
            _: _node_style(row)),
        ColumnField("kind", "kind", lambda row: event_kind(row.record), lambda row: event_kind(row.record), _quiet),
        ColumnField("text", "event", lambda row: event_text(row.record), lambda row: event_text(row.record),
              lambda row, _: row.span.style),
    )
}  # fmt: skip


def _node_style(row: EventRow) -> str:
    return "text" if row.record.node else "muted"


_SEVERITIES: Final = ("error", "warning", "info")

#: What events can be grouped by.
GROUPINGS: Final[tuple[Grouping[EventRow], ...]] = (
    NONE,
    Grouping("node", lambda entry: entry.row.node),
    Grouping("severity", lambda entry: severity_word(entry.row.record), _SEVERITIES.index, is_state=True),
    Grouping("kind", lambda entry: event_kind(entry.row.record)),
    Grouping("tag", lambda entry: entry.context.all_tags(entry.row.record.node)),
)


def _row_state(row: EventRow) -> RowState | None:
    status = event_status(row.record)
    return (status, severity_word(row.record)) if status and status != "ok" else None


def _object(row: EventRow) -> dict[str, Any]:
    """The record as it came, with its kind and what the screen makes of it."""
    return {
        "kind": event_kind(row.record), "node": row.record.node or None, "severity": severity_word(row.record),
        "text": event_text(row.record), "record": row.record,
    }  # fmt: skip


KIND: Final = ListKind("event", "time", FIELDS, EVENTS, GROUPINGS, _row_state, _object)


class EventFilter:
    """The numbers of the events that pass; each event is looked at once, because it never changes."""

    def __init__(self, passes: Callable[[EventRow], bool] | None) -> None:
        self._passes = passes
        self._passing: list[int] = []
        self._end = 0
        self._gone = 0

    @property
    def gone(self) -> int:
        """How many that passed are kept no more."""
        return self._gone

    def update(self, log: EventLog) -> Sequence[int]:
        """The numbers of all that pass, oldest first, with those that came since the last time."""
        if self._passes is None:
            self._gone = log.first
            return range(log.first, log.end)
        lost = bisect_left(self._passing, log.first)
        if lost:
            self._gone += lost
            del self._passing[:lost]
        for row in events_of(log, range(max(self._end, log.first), log.end)):
            if self._passes(row):
                self._passing.append(row.number)
        self._end = log.end
        return self._passing


def events_of(log: EventLog, numbers: Sequence[int]) -> list[EventRow]:
    """The events of these numbers; they must be kept."""
    return [EventRow(number, log.records[number - log.first], 0) for number in numbers]


class FilteredEvents(Sequence[GroupHeader | EventRow]):
    """Some events, by number, with heads between them; an event becomes a row when it is looked at."""

    def __init__(self, log: EventLog, entries: Sequence[int | GroupHeader], now: int) -> None:
        self._log, self._entries, self._now = log, entries, now

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # rows are asked for one by one or in one slice
        if isinstance(index, slice):
            return [self._row(entry) for entry in self._entries[index]]
        return self._row(self._entries[index])

    def _row(self, entry: int | GroupHeader) -> GroupHeader | EventRow:
        if isinstance(entry, GroupHeader):
            return entry
        return EventRow(entry, self._log.records[entry - self._log.first], self._now)
