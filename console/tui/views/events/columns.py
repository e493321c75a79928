"""The Events view as a list: columns, filter fields and groupings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....present.spans import BY_WEIGHT
from ....records import Finding, Log, Mark, Rank
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.column import ColumnField, column_field, keyed
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.list_kind import ListKind
from ...models.rows import RowState
from .model import EventRow, event_kind, event_status, event_text, is_of_node, severity_word


def _quiet(row: EventRow, text: str) -> str:
    return "muted"


def _node_time(row: EventRow) -> int | None:
    """Time by the node's own clock; None for events that the console observed."""
    return (row.record.t or None) if is_of_node(row.record) else None


def _severity(row: EventRow) -> tuple[int, bool]:
    """Worst first; markers before events without a severity."""
    status = event_status(row.record)
    return (BY_WEIGHT.index(status) if status else len(BY_WEIGHT), not isinstance(row.record, Mark))


def _kind(row: EventRow) -> str:
    return event_kind(row.record)


def _text(row: EventRow) -> str:
    return event_text(row.record)


FIELDS: Final[dict[str, ColumnField[EventRow]]] = keyed(
    ColumnField("time", "time", lambda row: format.clock_time(row.record.rx), lambda row: row.key, _quiet),
    column_field("node_time", "node time", _node_time, format.clock_time_ms, _quiet),
    ColumnField("age", "age", lambda row: row.age, lambda row: -row.key, _quiet),
    ColumnField("severity", "", lambda row: row.mark.text, _severity, lambda row, _: row.mark.style),
    ColumnField("node", "node", lambda row: row.node, lambda row: natural(row.node),
        lambda row, _: "text" if row.record.node else "muted"),
    ColumnField("kind", "kind", _kind, _kind, _quiet),
    ColumnField("text", "event", _text, _text, lambda row, _: row.span.style),
)  # fmt: skip


def _severities(entry: RowInContext[EventRow]) -> Value:
    """Severity and status: `severity:failed` is everything in that colour."""
    status = event_status(entry.row.record)
    return (severity_word(entry.row.record), *((status,) if status else ()))


def _job(entry: RowInContext[EventRow]) -> Value:
    record = entry.row.record
    return clean(record.job) if isinstance(record, Rank) else None


def _rank(entry: RowInContext[EventRow]) -> Value:
    record = entry.row.record
    return record.rank if isinstance(record, Rank) else None


def _culprits(entry: RowInContext[EventRow]) -> Value:
    record = entry.row.record
    return tuple(map(clean, record.culprits)) if isinstance(record, Finding) else None


def _words(entry: RowInContext[EventRow]) -> Iterable[str]:
    record = entry.row.record
    yield event_text(record)
    yield entry.row.node
    yield event_kind(record)
    if isinstance(record, Log):
        yield clean(record.try_)
    yield from entry.context.tags(record.node)


EVENTS: Final[Vocabulary[RowInContext[EventRow]]] = Vocabulary(
    (
        FilterField("severity", "word", _severities, "error, warning, info; or status: failed, ok", ("state",)),
        FilterField("kind", "word", lambda entry: _kind(entry.row), "source or subject: kernel, rank, …"),
        FilterField("node", "word", lambda entry: entry.row.node, "node name, e.g. node0[1-3]*; console"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.record.node), "node tag in hosts.toml"),
        FilterField("text", "text", lambda entry: _text(entry.row), "part of the event text", offered=False),
        FilterField("job", "text", _job, "part of the job name of a rank event"),
        FilterField("rank", "number", _rank, "rank of the event, e.g. 0-7"),
        FilterField("culprit", "word", _culprits, "culprit of a finding, e.g. node019"),
    ),
    _words,
)
GROUPINGS: Final[tuple[Grouping[EventRow], ...]] = (
    NONE,
    Grouping("node", lambda entry: entry.row.node),
    Grouping("severity", lambda entry: severity_word(entry.row.record), ("error", "warning", "info").index,
        is_state=True),
    Grouping("kind", lambda entry: _kind(entry.row)),
    Grouping("tag", lambda entry: entry.context.all_tags(entry.row.record.node)),
)  # fmt: skip


def _row_state(row: EventRow) -> RowState | None:
    status = event_status(row.record)
    return (status, severity_word(row.record)) if status and status != "ok" else None


def _object(row: EventRow) -> dict[str, Any]:
    """The record with its kind and its text on the screen."""
    return {
        "kind": _kind(row), "node": row.record.node or None, "severity": severity_word(row.record),
        "text": _text(row), "record": row.record,
    }  # fmt: skip


KIND: Final = ListKind(
    "event", "time", FIELDS, EVENTS, GROUPINGS, _row_state, _object, lambda row: row.record.node or ""
)
