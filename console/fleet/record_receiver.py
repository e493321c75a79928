"""The records of one node as they come: each once, in order, the holes counted; also over several connections."""

from __future__ import annotations

from collections.abc import Callable

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
    NodeState,
    RawRecord,
    decode,
)
from ..text.sanitize import printable
from .quotas import COMPLAINTS_BURST, COMPLAINTS_S, NodeQuota, TokenBucket, is_out_of_range

#: Kinds that are the console's own word: an agent that says them is not believed.
_OURS = (ConsoleRecord, NodeState, Mark, Finding, ClockWindow, ClockNode)
#: So many sorts of holes wait to be told; the reason of a hole in the agent's buffer is the agent's own text.
_MOST_REASONS = 16


class RecordReceiver:
    """Numbers what a node says, and takes of it what it may have. `complain` is told what cannot be believed or read.

    A record that is refused is counted like one that was lost. However many there are, they are told in a few gaps.
    """

    def __init__(self, node: str, hub: Hub, complain: Callable[[str], None], inherits: bool = False) -> None:
        """`inherits`: the agent may be that of a console before."""
        self.agent = ""  # the incarnation whose records are counted
        self.last_seq = 0  # of its last record that has come, or is known not to come
        self.quota = NodeQuota(inherits)
        self._node, self._hub, self._complain = node, hub, complain
        self._words = TokenBucket(COMPLAINTS_S, COMPLAINTS_BURST)  # gaps that are said at once
        self._unsaid: dict[tuple[str, str], Gap] = {}  # those that wait, added up, by source and reason

    def greet(self, agent: str) -> None:
        """This agent speaks from now on; a new one counts from 1."""
        if agent != self.agent:
            self.agent, self.last_seq = agent, 0

    def receive(self, line: bytes, rx: int) -> Published | None:
        """The record of a line that arrived at `rx` (console time, ns), stamped with where it came from.

        None where it came before, cannot be read, or is not the agent's to say.
        """
        try:
            record = decode(line)
        except BadRecord as error:
            self._complain(f"a record does not fit its kind: {printable(str(error)[:500])}")
            return None
        record.node, record.agent, record.rx = self._node, self.agent, rx
        if record.seq <= self.last_seq:
            return None  # it came before the reconnect already
        if record.seq > self.last_seq + 1:
            self._skip_to(record.seq - 1, "link", "records did not arrive")
        self.last_seq = record.seq
        if isinstance(record, _OURS) or (isinstance(record, Log) and record.source == "console"):
            self._complain(f"a record that is not the agent's to say: {type(record).__name__}")
            return None
        refused = self.quota.refusal(record, len(line))
        if refused is None and not isinstance(record, RawRecord) and is_out_of_range(record, line):
            refused = "a figure that no machine has"
        if refused is not None:
            self._say_gap("limit", f"not taken: {refused}", record.seq, record.seq, 1)
            return None
        if self._unsaid:
            self._say_unsaid()
        return record

    def skip(self, first: int, last: int, reason: str) -> bool:
        """The agent says in their place that these records are gone. False where they are not the next ones."""
        if first != self.last_seq + 1 or not first <= last < 2**63:
            return False
        self._skip_to(last, "buffer", reason)
        return True

    def _skip_to(self, last: int, source: str, reason: str) -> None:
        """Count the records after the last one that came, up to `last`, as never to come."""
        first, count = self.last_seq + 1, last - self.last_seq
        self.last_seq = last
        self._say_gap(source, reason, first, last, count)

    def _say_gap(self, source: str, reason: str, first: int, last: int, count: int) -> None:
        """Say a hole now, or add it to those of its sort where a node has made too many of them."""
        unsaid = self._unsaid.get((source, reason))
        if unsaid is None and self._words.consume():
            gap = Gap(node=self._node, source=source, reason=reason, count=count, first_seq=first, last_seq=last)
            self._hub.publish_own(gap)
        elif unsaid is not None:
            unsaid.count = (unsaid.count or 0) + count
        elif len(self._unsaid) < _MOST_REASONS:
            self._unsaid[source, reason] = Gap(node=self._node, source=source, reason=reason, count=count)
        else:
            self._say_gap(source, "for more reasons than are told", first, last, count)
        self._say_unsaid()

    def _say_unsaid(self) -> None:
        while self._unsaid and self._words.consume():
            self._hub.publish_own(self._unsaid.pop(next(iter(self._unsaid))))
