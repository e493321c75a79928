"""The bus that every record passes on its way from producers (fleet, replay) to sinks (store, recorder, views)."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..records import AnyRecord, ConsoleRecord, Finding, Gap, Log, NodeState, RawRecord, Record
from ..text.format import duration

#: What travels on the bus.
Published = AnyRecord | RawRecord
Sink = Callable[[Sequence[Published]], None]

_LOG_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}
_log = logging.getLogger("gconsole.records")


def _all_of_them(agent: str, seq: int) -> int:
    return seq


class Hub:
    """Hands every batch of records to every sink, in the order of subscription, synchronously.

    A sink must not block. `publish_own` stamps the console's own records with its id as their `agent`, and numbers them
    as those of an agent.
    """

    def __init__(self, console_id: str | None = None, seq: int = 0) -> None:
        """A console that resumes a crashed one takes its id, and the number of its last record."""
        self.console_id = console_id or secrets.token_hex(8)
        self._sinks: list[tuple[Sink, frozenset[type] | None]] = []
        self._seq = seq
        #: The last of an agent's records up to a number that is safely on disk; replaced by a recorder.
        self.kept: Callable[[str, int], int] = _all_of_them

    def adopt_identity(self, console_id: str, seq: int) -> None:
        """Publish own records under this console id from now on, numbered after `seq`."""
        self.console_id, self._seq = console_id, seq

    def subscribe(self, sink: Sink, kinds: frozenset[type] | None = None) -> Callable[[], None]:
        """Add a sink; returns a function that removes it.

        With `kinds` it gets only records of these types, and no batch without any: most records of a large fleet are
        samples, of which most sinks read none.
        """
        entry = sink, kinds
        self._sinks.append(entry)
        return lambda: self._sinks.remove(entry)

    def publish(self, records: Sequence[Published]) -> None:
        """Publish records of agents, already stamped."""
        arrived: set[type] = set(map(type, records))
        for sink, kinds in tuple(self._sinks):  # a copy: a sink may end its own subscription
            if kinds is None:
                sink(records)
            elif not kinds.isdisjoint(arrived):
                sink([record for record in records if type(record) in kinds])

    def publish_own(self, *records: Record) -> None:
        """Stamp and publish the console's own records."""
        for record in records:
            self._seq += 1
            record.agent = self.console_id
            record.seq = self._seq
            record.t = record.rx = time.time_ns()
            record.mono = time.monotonic_ns()
        self.publish(records)  # type: ignore[arg-type]


def _retry_text(state: NodeState) -> str:
    if state.retry_at is None:
        return "; no retry" if state.error and state.state == "failed" else ""
    return f"; retry in {duration(max(0, state.retry_at - state.t))}"


#: Kinds of which `log_records` logs some.
LOGGED: Final = frozenset({NodeState, Finding, Gap, Log, ConsoleRecord})


def log_records(batch: Sequence[Published]) -> None:
    """A sink of the bus: logs node states, findings, gaps and the console's own messages."""
    for record in batch:
        if isinstance(record, NodeState):
            reason = f": {record.error.name}: {record.error.text}" if record.error else ""
            when = _retry_text(record)
            level = logging.WARNING if record.error else logging.INFO
            _log.log(level, "%s %s, attempt %d%s%s", record.node, record.state, record.attempt, reason, when)
        elif isinstance(record, Finding):
            state = "cleared" if record.cleared_at is not None else "open"
            _log.log(_LOG_LEVELS[record.severity], "finding %s %s: %s", record.id, state, record.text)
        elif isinstance(record, Gap):
            _log.warning("gap on %s: %s, %s, count %s", record.node, record.source, record.reason, record.count)
        elif isinstance(record, Log) and record.source in ("console", "agent"):
            _log.log(_LOG_LEVELS[record.severity], "%s %s: %s", record.node, record.source, record.text)
        elif isinstance(record, ConsoleRecord):
            _log.info("console %s, gconsole %s, cluster %s", record.state, record.version, record.cluster)
