"""Counts the records of every agent in a session: received, duplicate, lost, or in a counted gap."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gconsole.records import Gap, Log, NodeState, Record, decode
from gconsole.session.format import zstd_frames
from gconsole.session.format.layout import Session


@dataclass(frozen=True)
class Count:
    """Counts of one or several nodes."""

    records: int = 0
    lost: int = 0  # neither received nor in a gap
    doubled: int = 0
    gap: int = 0  # not received, but in a gap record
    agents: int = 0  # incarnations

    def since(self, before: Count) -> Count:
        return Count(
            self.records - before.records, self.lost - before.lost, self.doubled - before.doubled,
            self.gap - before.gap, self.agents - before.agents,
        )  # fmt: skip


@dataclass
class _Agent:
    """Sequence numbers of one incarnation. They arrive in order, so gaps need few pairs."""

    node: str
    last: int = 0
    records: int = 0
    doubled: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    in_gaps: set[int] = field(default_factory=set)

    def take(self, seq: int) -> None:
        self.records += 1
        if seq > self.last:
            if seq > self.last + 1:
                self.holes.append((self.last + 1, seq - 1))
            self.last = seq
        elif any(first <= seq <= last for first, last in self.holes) and seq not in self.in_gaps:
            self.holes = [part for hole in self.holes for part in _without(hole, seq)]  # it arrived late
        else:
            self.doubled += 1

    @property
    def missing(self) -> int:
        return sum(last - first + 1 for first, last in self.holes)


def _without(hole: tuple[int, int], seq: int) -> list[tuple[int, int]]:
    first, last = hole
    if not first <= seq <= last:
        return [hole]
    return [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]


@dataclass(frozen=True)
class ConsoleMessage:
    """A message of the console, as its screen shows it, and its time (console CLOCK_REALTIME, ns)."""

    at: int
    text: str

    def after_s(self, injected_ns: int) -> float:
        return (self.at - injected_ns) / 1e9


class Tally:
    """Reads a session while it is written; `read` reads new records. `on_record` is called for every record."""

    def __init__(self, path: Path, on_record: Callable[[Record], None] = lambda record: None) -> None:
        self.session = Session(path)
        self.states: list[NodeState] = []
        self.gaps: list[Gap] = []
        self.logs: list[Log] = []  # from the console
        self._on_record = on_record
        self._read: dict[Path, int] = defaultdict(int)
        self._agents: dict[str, _Agent] = {}
        self._current_agents: dict[str, _Agent] = {}  # node → its current agent
        self._consoles: set[str] = set()

    def add_callback(self, on_record: Callable[[Record], None]) -> None:
        """Register another callback for all records read from now on."""
        before = self._on_record

        def both(record: Record) -> None:
            before(record)
            on_record(record)

        self._on_record = both

    def read(self) -> Tally:
        for path in self.session.segments():
            try:
                self._read_new(path)
            except FileNotFoundError:
                continue  # the last segment is deleted if it is empty
        return self

    def _read_new(self, path: Path) -> None:
        with path.open("rb") as file:
            for entry in zstd_frames.scan(path):
                if isinstance(entry, zstd_frames.Frame) and entry.offset >= self._read[path]:
                    file.seek(entry.start)
                    for line in zstd_frames.unpack(file.read(entry.label.bytes), entry.label).split(b"\n")[:-1]:
                        self._take(decode(line))
                    self._read[path] = entry.end

    def _take(self, record: Record) -> None:
        if isinstance(record, NodeState):
            self.states.append(record)
            self._consoles.add(record.agent)
        elif isinstance(record, Log) and record.source == "console":
            self.logs.append(record)
        elif isinstance(record, Gap) and not record.source.startswith("sampler"):
            self.gaps.append(record)
            self._add_gap(record)
        elif record.node and record.agent and record.agent not in self._consoles:
            agent = self._agents.setdefault(record.agent, _Agent(record.node))
            self._current_agents[record.node] = agent
            agent.take(record.seq)
        self._on_record(record)

    def _add_gap(self, gap: Gap) -> None:
        agent = self._current_agents.get(gap.node)
        if agent is not None and gap.first_seq is not None and gap.last_seq is not None:
            agent.in_gaps |= set(range(gap.first_seq, gap.last_seq + 1))

    def count(self, *nodes: str) -> Count:
        """Counts of these nodes, or of all."""
        agents = [agent for agent in self._agents.values() if not nodes or agent.node in nodes]
        gap = sum(
            last - first + 1 - len(set(range(first, last + 1)) - agent.in_gaps)
            for agent in agents for first, last in agent.holes
        )  # fmt: skip
        missing = sum(agent.missing for agent in agents)
        return Count(
            sum(agent.records for agent in agents), missing - gap, sum(agent.doubled for agent in agents), gap,
            len(agents),
        )  # fmt: skip

    def first_message(self, pattern: str, since_ns: int = 0) -> ConsoleMessage | None:
        """The first message since then that matches a regular expression: a log line, or the reason of a node state."""
        logs = (ConsoleMessage(log.rx, log.text) for log in self.logs)
        reasons = (
            ConsoleMessage(state.rx, f"{state.error.name}: {state.error.text}") for state in self.states if state.error
        )
        messages = (
            message for message in (*logs, *reasons) if message.at >= since_ns and re.search(pattern, message.text)
        )
        return min(messages, key=lambda message: message.at, default=None)

    def dropped(self, since_ns: int = 0) -> set[str]:
        """Nodes whose connection was lost since then; short silences do not count, busy machines cause them."""
        return {state.node for state in self.states if state.rx >= since_ns and state.retry_at is not None}

    def state(self, node: str) -> str | None:
        return next((state.state for state in reversed(self.states) if state.node == node), None)
