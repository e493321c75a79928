"""What a filter may say of an event. None of it changes once the event has come, but the tags of its node."""

from __future__ import annotations

from collections.abc import Iterable

from ....records import Finding, Log, Rank
from ....text.cells import clean
from ...models.filter_language import Field, Value, Vocabulary
from ...models.row_context import Seen
from .model import EventRow, event_kind, event_status, event_text, severity_word


def _severities(seen: Seen[EventRow]) -> Value:
    """Its word, and how it is drawn: `severity:failed` is everything in that colour."""
    status = event_status(seen.row.record)
    return (severity_word(seen.row.record), *((status,) if status else ()))


def _job(seen: Seen[EventRow]) -> Value:
    record = seen.row.record
    return clean(record.job) if isinstance(record, Rank) else None


def _rank(seen: Seen[EventRow]) -> Value:
    record = seen.row.record
    return record.rank if isinstance(record, Rank) else None


def _culprits(seen: Seen[EventRow]) -> Value:
    record = seen.row.record
    return tuple(map(clean, record.culprits)) if isinstance(record, Finding) else None


def _words(seen: Seen[EventRow]) -> Iterable[str]:
    record = seen.row.record
    yield event_text(record)
    yield seen.row.node
    yield event_kind(record)
    if isinstance(record, Log):
        yield clean(record.try_)
    yield from seen.around.tags(record.node)


EVENTS: Vocabulary[Seen[EventRow]] = Vocabulary(
    (
        Field("severity", "word", _severities, "error, warning, info; or how it is drawn: failed, ok", ("state",)),
        Field("kind", "word", lambda seen: event_kind(seen.row.record), "who says it, or what it is about: kernel, …"),
        Field("node", "word", lambda seen: seen.row.node, "a node's name, e.g. node0[1-3]*; console"),
        Field("tag", "word", lambda seen: seen.around.tags(seen.row.record.node), "a tag of its node in hosts.toml"),
        Field("text", "text", lambda seen: event_text(seen.row.record), "a part of what happened", offered=False),
        Field("job", "text", _job, "a part of the job's name, where it is about a rank"),
        Field("rank", "number", _rank, "the rank it is about, e.g. 0-7"),
        Field("culprit", "word", _culprits, "whom a finding blames, e.g. node019"),
    ),
    _words,
)
