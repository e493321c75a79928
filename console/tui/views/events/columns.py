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
from ...models.field import Field, field
from ...models.grouping import NONE, Grouping, Head
from ...models.list_kind import Kind
from ...models.state_counts import Standing
from .filter import EVENTS
from .model import EventLog, EventRow, clock_ms, event_kind, event_status, event_text, is_of_node, severity_word

#: Ten thousand events are of a few hundred nodes.
_natural = lru_cache(4096)(natural)


def _quiet(row: EventRow, text: str) -> str:
    return "muted"


def _node_time(row: EventRow) -> int | None:
    """The node's own clock; a fact of the console's has none."""
    return (row.record.t or None) if is_of_node(row.record) else None


def _badness(row: EventRow) -> tuple[int, bool]:
    """The worst first; then what a person wrote, then what needs nobody's attention."""
    status = event_status(row.record)
    return (BY_WEIGHT.index(status) if status else len(BY_WEIGHT), not isinstance(row.record, Mark))


FIELDS: dict[str, Field[EventRow]] = {
    found.key: found
    for found in (
        Field("time", "time", lambda row: _clock(row.record.rx), lambda row: row.number, _quiet),
        field("node_time", "node's clock", _node_time, lambda t: clock_ms(t or 0), _quiet),
        Field("age", "age", lambda row: row.age, lambda row: -row.number, _quiet),
        Field("severity", "", lambda row: row.mark.text, _badness, lambda row, _: row.mark.style),
        Field("node", "node", lambda row: row.node, lambda row: _natural(row.node), lambda row, _: _node_style(row)),
        Field("kind", "kind", lambda row: event_kind(row.record), lambda row: event_kind(row.record), _quiet),
        Field("text", "what happened", lambda row: event_text(row.record), lambda row: event_text(row.record),
              lambda row, _: row.span.style),
    )
}  # fmt: skip


def _clock(rx: int) -> str:
    return format.clock_time(rx) if rx else format.UNKNOWN


def _node_style(row: EventRow) -> str:
    return "text" if row.record.node else "muted"


_SEVERITIES: Final = ("error", "warning", "info")

#: What events can be grouped by.
GROUPINGS: Final[tuple[Grouping[EventRow], ...]] = (
    NONE,
    Grouping("node", lambda seen: seen.row.node),
    Grouping("severity", lambda seen: severity_word(seen.row.record), _SEVERITIES.index, is_state=True),
    Grouping("kind", lambda seen: event_kind(seen.row.record)),
    Grouping("tag", lambda seen: seen.around.all_tags(seen.row.record.node)),
)


def _standing(row: EventRow) -> Standing | None:
    status = event_status(row.record)
    return (status, severity_word(row.record)) if status and status != "ok" else None


def _object(row: EventRow) -> dict[str, Any]:
    """The record as it came, with its kind and what the screen makes of it."""
    return {
        "kind": event_kind(row.record), "node": row.record.node or None, "severity": severity_word(row.record),
        "text": event_text(row.record), "record": row.record,
    }  # fmt: skip


KIND: Final = Kind("event", "time", FIELDS, EVENTS, GROUPINGS, _standing, _object)


class Sieve:
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

    def take_in(self, log: EventLog) -> Sequence[int]:
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


class Picked(Sequence[Head | EventRow]):
    """Some events, by number, with heads between them; an event becomes a row when it is looked at."""

    def __init__(self, log: EventLog, entries: Sequence[int | Head], now: int) -> None:
        self._log, self._entries, self._now = log, entries, now

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, at):  # type: ignore[no-untyped-def]  # rows are asked for one by one or in one slice
        if isinstance(at, slice):
            return [self._row(entry) for entry in self._entries[at]]
        return self._row(self._entries[at])

    def _row(self, entry: int | Head) -> Head | EventRow:
        if isinstance(entry, Head):
            return entry
        return EventRow(entry, self._log.records[entry - self._log.first], self._now)
