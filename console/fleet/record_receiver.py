"""Receives one node's records once each, in order, counting gaps, across reconnects."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ..core.bus import Hub, Published
from ..records import (
    BadRecord,
    ClockNode,
    ClockWindow,
    ConsoleRecord,
    Finding,
    Gap,
    Log,
    Mark,
    Node,
    NodeState,
    decode,
)
from ..text.format import duration
from ..text.sanitize import printable
from .quotas import WARNINGS_BURST, WARNINGS_S, NodeQuota, TokenBucket

#: Kinds that only the console may publish.
_CONSOLE_KINDS = frozenset((ConsoleRecord, NodeState, Mark, Finding, ClockWindow, ClockNode))
#: Sources of log records that only the console may publish.
_CONSOLE_SOURCES = ("console", "kubernetes")
#: Kinds that are not simply counted and passed on; nearly all records are of others.
_EXAMINED = _CONSOLE_KINDS | {Log, Node}
#: Kinds of pending gaps; the reason of a gap in the agent's buffer is the agent's own text.
_MAX_REASONS = 16
#: Agents of one node whose last record is remembered.
_MAX_EARLIER = 16


class RecordReceiver:
    """Sequences a node's records and applies its quota. `warn` reports invalid records.

    Rejected records count as lost; however many there are, a few gap records report them.
    """

    def __init__(self, node: str, hub: Hub, warn: Callable[[str], None], inherits: bool = False) -> None:
        """`inherits`: the agent may have served an earlier console."""
        self.agent = ""  # the incarnation being counted
        self.last_seq = 0  # last record received or known lost
        self._earlier: dict[str, int] = {}  # the same of the last agents before: a gateway may have kept more of them
        self.quota = NodeQuota(inherits)
        self._node, self._hub, self._warn = node, hub, warn
        self._newest_rx = 0  # arrival of the last record, ns
        self._ended: tuple[int, int] | None = None  # last record of the agent before, and its arrival
        self._gap_bucket = TokenBucket(WARNINGS_S, WARNINGS_BURST)  # rate limit of gap records
        self._pending: dict[tuple[str, str], Gap] = {}  # pending gaps by source and reason

    def on_hello(self, agent: str) -> None:
        """Set the agent whose records follow; a new one counts from 1."""
        if agent != self.agent:
            self._earlier[self.agent] = self.last_seq
            while len(self._earlier) > _MAX_EARLIER:
                del self._earlier[next(iter(self._earlier))]
            is_back = agent in self._earlier  # then none has ended between
            self._ended = (self.last_seq, self._newest_rx) if self._newest_rx and not is_back else None
            self.agent, self.last_seq = agent, self._earlier.pop(agent, 0)

    def receive(self, line: bytes, rx: int) -> Published | None:
        """Decode a line received at `rx` (console time, ns) and stamp its origin.

        None if it is a duplicate, invalid, or not permitted.
        """
        try:
            record = decode(line)
        except BadRecord as error:
            self.reject(error)
            return None
        return self.accept(record, len(line), rx)

    def accept(self, record: Published, size: int, rx: int) -> Published | None:
        """Stamp the origin of a decoded record of `size` bytes of JSON; None as of `receive`."""
        record.node, record.agent, record.rx = self._node, self.agent, rx
        if record.seq == self.last_seq + 1:
            self.last_seq += 1
        elif not self._is_next(record.seq):
            return None
        is_examined = type(record) in _EXAMINED
        if is_examined and self._is_reserved(record):
            self._warn(f"record kind reserved for the console: {type(record).__name__}")
            return None
        refusal = self.quota.refusal(record, size)
        if refusal is not None:
            self._publish_gap("limit", f"rejected: {refusal}", record.seq, record.seq, 1)
            return None
        if self._pending:
            self._publish_pending()
        self._newest_rx = rx
        if is_examined and isinstance(record, Node):
            self._count_missed_ticks(record)
        return record

    @staticmethod
    def _is_reserved(record: Published) -> bool:
        return type(record) in _CONSOLE_KINDS or (isinstance(record, Log) and record.source in _CONSOLE_SOURCES)

    def _count_missed_ticks(self, node: Node) -> None:
        """Publish the gap between an agent that ended and this first record of the next; none if no tick is missing."""
        ended, self._ended = self._ended, None
        if ended is None or not node.sample_interval_ms:
            return
        last, last_rx = ended
        away_ns = node.rx - last_rx
        ticks = int(away_ns / 1e6 / node.sample_interval_ms) - 1
        if ticks > 0:
            reason = f"no agent for {duration(away_ns)}: the one before ended"
            self._publish_gap("link", reason, last + 1, None, ticks)

    def reject_up_to(self, first: int, last: int, reason: str) -> None:
        """Count records as lost that cannot be read, those among them that were not received before."""
        first = max(first, self.last_seq + 1)
        if first <= last and self._is_next(first):
            self.last_seq = last
            self._publish_gap("limit", f"rejected: {reason}", first, last, last - first + 1)

    def reject(self, error: BadRecord) -> None:
        """Report an invalid record, and count it as lost if it has a number."""
        if error.seq is not None and not self._is_next(error.seq):
            return
        self._warn(f"invalid record: {printable(str(error)[:500])}")
        if error.seq is not None:
            self._publish_gap("limit", "rejected: invalid record", error.seq, error.seq, 1)

    def _is_next(self, seq: int) -> bool:
        """Whether `seq` was not received before a reconnect; counts the numbers in between as lost."""
        if seq <= self.last_seq:
            return False
        if seq > self.last_seq + 1:
            self._skip_to(seq - 1, "link", "records did not arrive")
        self.last_seq = seq
        return True

    def skip(self, first: int, last: int, reason: str) -> bool:
        """Handle the agent's report of dropped records. False if they are not the next ones."""
        if first != self.last_seq + 1 or not first <= last < 2**63:
            return False
        self._skip_to(last, "buffer", reason)
        return True

    def _skip_to(self, last: int, source: str, reason: str) -> None:
        """Count the records up to `last` as lost."""
        first, count = self.last_seq + 1, last - self.last_seq
        self.last_seq = last
        self._publish_gap(source, reason, first, last, count)

    def _publish_gap(self, source: str, reason: str, first: int, last: int | None, count: int) -> None:
        """Publish a gap now, or merge it with pending ones of its kind when over the rate limit."""
        pending = self._pending.get((source, reason))
        if pending is None and self._gap_bucket.consume():
            gap = Gap(node=self._node, source=source, reason=reason, count=count, first_seq=first, last_seq=last)
            self._hub.publish_own(gap)
        elif pending is not None:
            pending.count = (pending.count or 0) + count
        elif len(self._pending) < _MAX_REASONS:
            self._pending[source, reason] = Gap(node=self._node, source=source, reason=reason, count=count)
        else:
            self._publish_gap(source, "other reasons", first, last, count)
        self._publish_pending()

    def _publish_pending(self) -> None:
        while self._pending and self._gap_bucket.consume():
            self._hub.publish_own(self._pending.pop(next(iter(self._pending))))


#: Seconds. Upper bound on one slice of record processing per node, so that other nodes are not delayed. One tick
#: of eight GPUs takes half of it.
SLICE_S = 0.002
#: Lines between two checks of the clock.
_LINES_PER_CHECK = 8
#: Seconds. Maximum pause of a node above its quota; longer would look like silence.
MAX_PAUSE_S = 1.0
#: Seconds above quota until it is reported; a lingering agent's backlog of minutes is processed by then.
LATE_S = 5.0

#: A line and its arrival (console time, ns).
Line = tuple[bytes, int]


class FairReader:
    """Queues the lines of one node and passes them to `process` in order, once each.

    `process` consumes lines until its iterator ends; `set_paused` applies back-pressure. `share` is the event loop's
    CPU time in seconds. `report_overload` is called once per overload, after `LATE_S`.
    """

    def __init__(
        self, process: Callable[[Iterator[Line]], None], set_paused: Callable[[bool], None], share: TokenBucket,
        report_overload: Callable[[], None],
    ) -> None:  # fmt: skip
        self._process, self._set_paused = process, set_paused
        self._share, self._report_overload = share, report_overload
        self._report_at: float | None = None  # monotonic time of the report; infinity once reported
        self._queue: deque[Line] = deque()
        self._pause_timer: asyncio.Handle | None = None  # the next slice follows
        self._is_paused = False
        self._on_drained: Callable[[], None] | None = None

    def add(self, lines: Iterable[bytes], rx: int) -> None:
        """Queue lines that arrived at `rx`; they are processed at once unless paused."""
        self._queue.extend((line, rx) for line in lines)
        if self._pause_timer is None:
            self._next()

    def finish(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the queue is empty."""
        if self._queue and self._on_drained is None:
            self._on_drained = callback
        elif not self._queue:
            callback()

    def clear(self) -> None:
        """Drop the queue."""
        self._queue.clear()
        self._on_drained = None
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _next(self) -> None:
        """Process the next slice, then pause if over quota; otherwise resume reading."""
        self._pause_timer = None
        if self._queue:
            began_s = time.thread_time()  # what other programs take of the processor meanwhile is not the node's
            self._process(self._slice(time.monotonic() + SLICE_S))
            pause_s = self._share.spend(time.thread_time() - began_s)
            if pause_s > 0 or self._report_at is not None:
                self._check_overload(pause_s)
            if self._queue or pause_s > 0:
                self._update_paused(paused=True)
                self._pause_timer = asyncio.get_running_loop().call_later(min(pause_s, MAX_PAUSE_S), self._next)
                return
        self._update_paused(paused=False)
        if self._on_drained is not None:
            callback, self._on_drained = self._on_drained, None
            callback()

    def _check_overload(self, pause_s: float) -> None:
        now = time.monotonic()
        if self._share.is_half_full:
            self._report_at = None
        elif self._report_at is None:
            self._report_at = now + LATE_S if pause_s > 0 else None
        elif now >= self._report_at:
            self._report_at = math.inf
            self._report_overload()

    def _slice(self, until: float) -> Iterator[Line]:
        count = 0
        while self._queue:
            yield self._queue.popleft()
            count += 1
            if count % _LINES_PER_CHECK == 0 and time.monotonic() > until:
                return

    def _update_paused(self, *, paused: bool) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            self._set_paused(paused)
