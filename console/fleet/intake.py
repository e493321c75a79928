"""The records of one node as they come: each once, in order, the holes counted; also over several connections."""

from __future__ import annotations

from collections.abc import Callable

from ..hub import Hub, Published
from ..records import BadRecord, Console, Finding, Gap, Mark, NodeState, decode

#: Kinds that are the console's own word: an agent that says them is not believed.
_OURS = (Console, NodeState, Mark, Finding)


class Intake:
    """Numbers what a node says. `complain` is told what cannot be believed or read."""

    def __init__(self, node: str, hub: Hub, complain: Callable[[str], None]) -> None:
        self.agent = ""  # the incarnation whose records are counted
        self.last_seq = 0  # of its last record that has come, or is known not to come
        self._node, self._hub, self._complain = node, hub, complain

    def greet(self, agent: str) -> None:
        """This agent speaks from now on; a new one counts from 1."""
        if agent != self.agent:
            self.agent, self.last_seq = agent, 0

    def take(self, line: bytes, rx: int) -> Published | None:
        """The record of a line that arrived at `rx` (console time, ns), stamped with where it came from.

        None where it came before, cannot be read, or is not the agent's to say.
        """
        try:
            record = decode(line)
        except BadRecord as error:
            self._complain(f"a record does not fit its kind: {error}")
            return None
        record.node, record.agent, record.rx = self._node, self.agent, rx
        if record.seq <= self.last_seq:
            return None  # it came before the reconnect already
        if record.seq > self.last_seq + 1:
            self._skip_to(record.seq - 1, "link", "records did not arrive")
        self.last_seq = record.seq
        if isinstance(record, _OURS):
            self._complain(f"a record that is not the agent's to say: {type(record).__name__}")
            return None
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
        self._hub.say(Gap(node=self._node, source=source, reason=reason, count=count, first_seq=first, last_seq=last))
