"""What a filter may say of an event. None of it changes once the event has come, but the tags of its node."""

from __future__ import annotations

from collections.abc import Iterable

from ....records import Finding, Log, Rank
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.row_context import RowInContext
from .model import EventRow, event_kind, event_status, event_text, severity_word


def _severities(entry: RowInContext[EventRow]) -> Value:
    """Its word, and how it is drawn: `severity:failed` is everything in that colour."""
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


EVENTS: Vocabulary[RowInContext[EventRow]] = Vocabulary(
    (
        FilterField("severity", "word", _severities, "error, warning, info; or status: failed, ok", ("state",)),
        FilterField("kind", "word", lambda entry: event_kind(entry.row.record), "source or subject: kernel, rank, …"),
        FilterField("node", "word", lambda entry: entry.row.node, "node name, e.g. node0[1-3]*; console"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.record.node), "node tag in hosts.toml"),
        FilterField(
            "text", "text", lambda entry: event_text(entry.row.record), "part of the event text", offered=False
        ),
        FilterField("job", "text", _job, "part of the job name of a rank event"),
        FilterField("rank", "number", _rank, "rank of the event, e.g. 0-7"),
        FilterField("culprit", "word", _culprits, "culprit of a finding, e.g. node019"),
    ),
    _words,
)
