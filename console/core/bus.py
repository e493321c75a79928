"""The bus that every record passes on its way from producers (fleet, replay) to sinks (store, recorder, views)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from ..records import AnyRecord, RawRecord, Record

#: What travels on the bus.
Published = AnyRecord | RawRecord
Sink = Callable[[Sequence[Published]], None]


def _all_of_them(agent: str, seq: int) -> int:
    return seq


class Hub:
    """Hands every batch of records to every sink, in the order of subscription, synchronously.

    A sink must not block. Facts that the console itself observes are published with `say`, which stamps them with the
    console's id as their `agent` and numbers them like any agent's.
    """

    def __init__(self, console_id: str | None = None, seq: int = 0) -> None:
        """A console that goes on where a crashed one stopped takes its id, and the number of its last record."""
        self.console_id = console_id or secrets.token_hex(8)
        self._sinks: list[Sink] = []
        self._seq = seq
        #: Of an agent's records up to a number: the last that is kept safely. A recorder takes the place of this.
        self.kept: Callable[[str, int], int] = _all_of_them

    def go_on_as(self, console_id: str, seq: int) -> None:
        """From now on the console's own records are those of this one, behind its record `seq`."""
        self.console_id, self._seq = console_id, seq

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        """Add a sink; the answer removes it again."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def publish(self, records: Sequence[Published]) -> None:
        """Records as they arrived, already stamped."""
        for sink in tuple(self._sinks):  # a copy: a sink may end its own subscription
            sink(records)

    def say(self, *records: Record) -> None:
        """Facts of the console's own, stamped here."""
        for record in records:
            self._seq += 1
            record.agent = self.console_id
            record.seq = self._seq
            record.t = record.rx = time.time_ns()
            record.mono = time.monotonic_ns()
        self.publish(records)  # type: ignore[arg-type]
