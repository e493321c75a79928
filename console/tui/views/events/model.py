"""Events: the log of the newest, and each of them as a row and in detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ....analysis.finding import name_of
from ....present.spans import GLYPHS, SEVERITY_STATUS, Line, Span, Status, cut, rank_status
from ....records import Finding, Gap, GpuEvent, JobNode, Log, Mark, Nic, NodeState, Rank, Record
from ....records.event import Severity
from ....text import format
from ....text.cells import clean
from ...models.detail import Detail, Fact, PageItem, finding_facts
from ...models.grouping import GroupHeader
from ...models.node_summary import error_phrase
from ...models.numbered_log import LazyRows, NumberedLog
from ...models.rows import PlainRow

#: Events. At least this many are kept.
KEPT = 10_000
#: Marks of events without a status, and of markers.
QUIET, NOTE = Span("·", "muted"), Span("◆", "accent")

_SECOND = 1_000_000_000
_NODE_STATUS: dict[str, Status] = {"ok": "ok", "lost": "failed", "failed": "failed"}
_NODE_TEXT = {"ok": "connected, receiving data", "connecting": "connecting", "expected": "queued to connect"}


@dataclass(frozen=True, slots=True)
class EventRow(PlainRow):
    """One event at `now` (console time, ns); `key` counts events from 0."""

    key: int
    record: Record
    now: int

    @property
    def version(self) -> tuple[int, str]:
        """Changes with the age."""
        return (self.key, self.age)

    @property
    def age(self) -> str:
        """Time since the console received it."""
        return format.age(self.now - self.record.rx) if self.record.rx else format.UNKNOWN

    @property
    def node(self) -> str:
        """The node, or `console`."""
        return clean(self.record.node) or "console"

    @property
    def mark(self) -> Span:
        """Its severity as a glyph."""
        status = event_status(self.record)
        if isinstance(self.record, Mark):
            return NOTE
        return Span(GLYPHS[status], status) if status else QUIET

    @property
    def span(self) -> Span:
        """What happened, as a styled phrase."""
        status = event_status(self.record)
        style = "accent" if isinstance(self.record, Mark) else status if status and status != "ok" else "text"
        return Span(event_text(self.record), style)


class EventLog(NumberedLog[Record, EventRow]):
    """The newest events."""

    def __init__(self, records: Iterable[Record] = (), first: int = 0) -> None:
        super().__init__(KEPT, records, first)

    def row(self, number: int, now: int = 0) -> EventRow:
        """The event of that number as a row at `now`, console time in ns."""
        return EventRow(number, self.items[number - self.first], now)

    def rows(self, now: int, numbers: Sequence[int | GroupHeader] | None = None) -> LazyRows[GroupHeader | EventRow]:
        """These events, by default all, as rows at `now`; headers may stand between them."""
        return LazyRows(self.numbers if numbers is None else numbers, partial(self.row, now=now))

    def find(self, number: int) -> Record | None:
        """The event of that number, while it is kept."""
        return self.items[number - self.first] if self.first <= number < self.end else None

    def of_node(self, node: str, most: int) -> list[EventRow]:
        """The newest events of a node, newest first."""
        return self.newest(lambda record: record.node == node, most)

    def newest(self, wanted: Callable[[Record], bool], most: int) -> list[EventRow]:
        """The newest `most` events that are wanted, newest first."""
        numbers = (number for number in range(self.end - 1, self.first - 1, -1)
                   if wanted(self.items[number - self.first]))  # fmt: skip
        return [self.row(number) for number in islice(numbers, most)]

    def copied(self) -> EventLog:
        """A copy that does not grow."""
        return EventLog(self.items, self.first)


def event_status(record: Record) -> Status | None:
    """Status of the event; None if it needs no attention."""
    if isinstance(record, NodeState):
        return _NODE_STATUS.get(record.state)
    if isinstance(record, Rank):
        return rank_status(record.status)
    if isinstance(record, Gap):
        return "warning"
    if isinstance(record, Finding) and record.cleared_at is not None:
        return "ok"
    if isinstance(record, GpuEvent) and record.event in _GOOD_GPU_EVENTS:
        return "ok"
    if isinstance(record, JobNode):
        return "failed" if record.state == "failed" else None
    if isinstance(record, Nic):
        return "warning"
    if isinstance(record, Finding | Log | GpuEvent):
        return None if record.severity == "info" else SEVERITY_STATUS[record.severity]
    return None


def severity_word(record: Record) -> Severity:
    """Severity, in the words of findings and log lines."""
    if isinstance(record, Finding | Log) and event_status(record) != "ok":
        return record.severity
    status = event_status(record)
    return "error" if status == "failed" else "warning" if status in ("warning", "stale") else "info"


def is_of_node(record: Record) -> bool:
    """Whether the node reported it, with its own clock; other events about a node are observed by the console."""
    observed = isinstance(record, NodeState | Gap | Mark | Finding)
    return bool(record.node) and not observed and not (isinstance(record, Log) and record.source == "console")


def event_kind(record: Record) -> str:
    """Source or subject, in one word."""
    if isinstance(record, Log):
        return clean(record.source)
    return _KINDS.get(type(record), "event")


def event_text(record: Record) -> str:
    """What happened, in one line."""
    if isinstance(record, NodeState):
        return _node_text(record)
    if isinstance(record, Rank):
        return _rank_text(record)
    if isinstance(record, Gap):
        counted = f"{format.count(record.count)} records lost" if record.count is not None else "records lost"
        return clean(f"gap in {record.source}: {counted}, {record.reason}")
    if isinstance(record, Finding):
        return clean(f"{'cleared: ' if record.cleared_at is not None else ''}{name_of(record.id)}: {record.text}")
    if isinstance(record, GpuEvent):
        place = record.pci_bus_id if record.index is None else f"gpu{record.index}"
        return clean(f"{place or 'GPU'}: {record.text}")
    if isinstance(record, Nic):
        return clean(f"{record.device} port {record.port} removed")
    if isinstance(record, JobNode):
        reason = f": {record.reason}" if record.reason else ""
        return clean(f"job {record.job}: {record.state}{reason}")
    if isinstance(record, Log) and record.at is not None and record.t - record.at >= EARLIER_NS:
        when = "before you came" if record.is_earlier else "earlier"
        return clean(f"{format.age(record.t - record.at)} {when}: {record.text}")
    if isinstance(record, Log | Mark):
        return clean(record.text)
    return type(record).__name__


def _node_text(state: NodeState) -> str:
    if state.error is None:
        again = f" (attempt {state.attempt})" if state.attempt > 1 else ""
        return _NODE_TEXT.get(state.state, state.state) + again
    return f"{state.state}: {error_phrase(state)}"


def _rank_text(rank: Rank) -> str:
    number = format.UNKNOWN if rank.rank is None else str(rank.rank)
    why = f": {rank.reason}" if rank.reason else ""
    return clean(f"rank {number} of {rank.job} {_RANK_WORDS.get(rank.status, rank.status)}{why}")


#: ns. A kernel message that is older than this when it is reported is shown with its age.
EARLIER_NS = 5_000_000_000
_KINDS: dict[type[Record], str] = {
    NodeState: "node", Rank: "rank", Gap: "gap", Mark: "mark", Finding: "finding", GpuEvent: "gpu", Nic: "nic",
    JobNode: "job",
}  # fmt: skip
#: GPU events that end a problem.
_GOOD_GPU_EVENTS = ("link_up", "clocks_free", "back")
_RANK_WORDS = {
    "exited": "exited",
    "stale": "is stale (earlier attempt)",
    "no_permission": "cannot be read (no permission)",
    "withdrawn": "was not a rank",
}


def event_detail(record: Record, now: int) -> Detail:
    """Everything about an event: text, remedy, time by both clocks."""
    status = event_status(record)
    title = f"{event_kind(record)}  {clean(record.node) or 'console'}"
    return Detail(title, status or "unknown", (*_facts(record), *_when(record, now)))


def _facts(record: Record) -> Iterator[Fact]:
    """The fields of each kind of event."""
    yield Fact("event", event_text(record), event_status(record) or "text")
    if isinstance(record, NodeState):
        if record.error and record.error.try_:
            yield Fact("try", clean(record.error.try_), "accent")
        yield Fact("attempt", str(record.attempt))
        if record.retry_at is not None:
            yield Fact("next attempt", format.clock_time(record.retry_at))
    elif isinstance(record, Log):
        if record.try_:
            yield Fact("try", clean(record.try_), "accent")
        yield Fact("severity", record.severity)
        if record.fault is not None:
            yield Fact("fault", clean(" ".join(filter(None, (record.fault.replace("_", " "), record.subject)))))
        if record.at is not None:
            yield Fact("logged at", format.clock_time(record.at))
        if record.pid is not None:
            yield Fact("process", f"pid {record.pid}")
    elif isinstance(record, GpuEvent):
        if record.try_:
            yield Fact("try", clean(record.try_), "accent")
        yield Fact("source", {"nvml": "driver (NVML)", "kernel": "kernel log"}[record.source])
        yield Fact("uuid", clean(record.uuid or format.UNKNOWN))
        if record.xid is not None:
            yield Fact("XID", clean(f"{record.xid}{f', {record.sub_code}' if record.sub_code else ''}"))
            if record.action is not None:
                yield Fact("action", clean(record.action) + (f", by the {record.owner}" if record.owner else ""))
    elif isinstance(record, Gap):
        if record.first_seq is not None:
            yield Fact("records", f"{record.first_seq} to {record.last_seq}")
    elif isinstance(record, Rank):
        yield Fact("job", clean(f"{record.job}, attempt {record.attempt}"))
        yield Fact("process", f"pid {record.pid}")
        yield Fact("detected by", clean(record.source))
    elif isinstance(record, Finding):
        yield from finding_facts(record)


def _when(record: Record, now: int) -> Iterator[Fact]:
    if not record.rx:
        return
    yield Fact("", "")
    yield Fact("console time", f"{format.date_time_ms(record.rx)}, {format.age(now - record.rx)} ago")
    if is_of_node(record) and record.t:
        apart = (record.t - record.rx) / _SECOND  # network delay plus clock difference
        yield Fact("node time", f"{format.date_time_ms(record.t)}, {apart:+.3f} s from console time")
    yield Fact("record", clean(f"#{record.seq} of {record.agent or format.UNKNOWN}"), "muted")


def event_line(row: EventRow, width: int) -> Line:
    """An event on one line of a page: time, severity, text."""
    when = format.clock_time(row.record.rx)
    return Line(cut((Span(f"{when} ", "muted"), row.mark, Span(" "), row.span), width), PageItem("event", row.key))
