"""The bus every record passes, and `Control`: the one way back to whoever produces them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..records import AnyRecord, Failure, RawRecord, Record

if TYPE_CHECKING:
    from ..config.diff import Changes
    from ..config.model import Config
    from ..config.read_only import Change, ReadOnly
    from ..monitor.node_exam import ExamReply
    from ..session.format.layout import Selection
    from .job_protocol import FileList, JobQuestion, NodeOrder, NodeStop, Readiness, Synced, SyncFolder

#: What travels on the bus.
Published = AnyRecord | RawRecord
Sink = Callable[[Sequence[Published]], None]


@dataclass(frozen=True)
class CaptureOrder:
    """What is to be captured; whoever asks gives the id (`new_capture`), and finds the stacks under it in the store."""

    id: str
    jobs: tuple[str, ...] | None = None  # None: all
    samples: int = 1
    every_s: float = 0.3  # between samples
    flight: bool = True  # also read what communication libraries recorded, where it happens to be there
    flight_pipe: bool = False  # ranks may be made to write their dump: that changes the job
    only: tuple[tuple[str, int], ...] | None = None  # (node, pid); None: all ranks and what is below them
    locals: tuple[str, ...] = ()  # variables to be read: NAME, or FUNCTION:NAME
    native: tuple[tuple[str, int], ...] = ()  # (node, pid) whose native calls are read too, which stops them meanwhile


class NodeCounts(msgspec.Struct, frozen=True):
    """What one node read, all samples together."""

    ranks: int
    processes: int  # ranks and those below them
    samples: int
    statuses: dict[str, int]  # status of a read → how often
    spread_ns: int | None  # between the first and the last process that /proc was read of, in the worst sample
    stopped_since: int  # processes found stopped after they were read, and not before: by somebody else
    last_seq: int  # of the agent's last record of this capture


@dataclass(frozen=True)
class CaptureDone:
    """How a capture went. A node is in `nodes`, or in `failures` with its reason."""

    id: str
    at: int  # the instant of the first sample, CLOCK_REALTIME of the console, ns
    nodes: Mapping[str, NodeCounts]
    failures: Mapping[str, Failure]


def new_capture() -> str:
    """An id nobody has used."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class RecordingNow:
    """A recording under way."""

    name: str
    began: int  # console CLOCK_REALTIME, ns
    records: int  # that are safely on the disk
    bytes: int
    trouble: str = ""  # why nothing can be written at the moment; empty while all is well
    path: Path | None = None  # its folder


@dataclass(frozen=True)
class LeftBehind:
    """How a console goes on that crashed while it recorded. Nodes are called as in that recording: `name_of` tells."""

    console_id: str  # agents that linger wait for a console of this id
    seq: int  # the last number that it gave to a record of its own
    agents: Mapping[str, tuple[str, int]]  # node → its agent, and that one's last recorded number
    name_of: Callable[[str], str] = str
    broke_off: int = 0  # when the last recorded word had come, console CLOCK_REALTIME, ns

    def agent_of(self, node: str) -> tuple[str, int] | None:
        """Of a node of the fleet: the agent that was there, and its last recorded number."""
        return self.agents.get(self.name_of(node))


class Bridge(Protocol):
    """Whoever can speak on with the agents that a crashed console left."""

    def is_awaited(self, left: LeftBehind) -> bool:
        """Whether any of them may still linger."""
        ...

    async def go_on_as(self, left: LeftBehind) -> None:
        """Be that console from now on, and have its agents hand over what came since. Agents of our own end."""
        ...


class Recordings(Protocol):
    """What is recorded at the moment, and how that begins and ends."""

    def now(self) -> Sequence[RecordingNow]:
        """Those under way, the oldest first."""
        ...

    async def start(self, name: str, selection: Selection | None = None) -> bool:
        """Record from now on; true where a session of that name goes on that had crashed. Raises SessionError."""
        ...

    async def stop(self, name: str) -> RecordingNow:
        """End one orderly; what came of it. Raises SessionError."""
        ...


class Control(Protocol):
    """What a view, batch or an HTTP client may ask for; implemented by the fleet (live) and by replay."""

    @property
    def recordings(self) -> Recordings | None:
        """None where nothing can be recorded: in a replay."""
        ...

    async def reconnect(self, node: str) -> None:
        """Connect to a node again now. Raises KeyError for a node that is not of this fleet."""
        ...

    async def remove_node(self, node: str) -> None:
        """Let go of a node; its records stay."""
        ...

    async def add_nodes(self, names: str) -> Sequence[str]:
        """Begin to connect to the nodes of a node set; those that were not there. Raises ConfigError."""
        ...

    async def apply(self, config: Config) -> Changes:
        """Follow a newer configuration: nodes come, go, or are connected anew."""
        ...

    async def examine(self, nodes: Sequence[str]) -> Sequence[ExamReply]:
        """The doctor's answers of these nodes, over the connections that are there."""
        ...

    async def mark(self, text: str) -> None:
        """Keep a person's note about this instant, as a record."""
        ...

    def refusal(self, change: Change) -> ReadOnly | None:
        """Why this console may not change that; None where it may. What is asked for all the same raises it."""
        ...

    async def capture(self, order: CaptureOrder) -> CaptureDone:
        """Read all ranks' stacks at one instant. Returns once their records have passed the hub, or time is up.

        How far it is stands in the store meanwhile, under the order's id. Raises ReadOnly for a `flight_pipe` that
        may not be.
        """
        ...

    def want_clocks(self, who: str, wanted: bool) -> None:
        """Have clocks probed without pause while anybody wants it; `who` tells those who want it apart.

        What the probes find comes as records. Nothing happens where `[clock]` forbids it, or there are no nodes.
        """
        ...

    async def probe_job(self, nodes: Sequence[str], question: JobQuestion) -> Mapping[str, Readiness | Failure]:
        """Whether a job could run on these nodes; each answers, or has its reason why not."""
        ...

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        """Copy a folder of this machine into `workdir` of these nodes; only what differs travels. Each says what it
        lacked, or why it could not be brought. Raises ReadOnly."""
        ...

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        """Start a job on all of its nodes, or on none. Nothing in the answer: it runs; else each node that failed, and
        those on which what had begun could not be ended again. Raises ReadOnly."""
        ...

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        """End every process of a job on these nodes: TERM, and KILL after the grace. Raises ReadOnly."""
        ...

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        """Have a job's output said as records, from its last lines on; with `follow` also what comes. It returns once
        what was there has passed the hub; nodes that cannot are in the answer."""
        ...

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        """Have what a job writes said as records while it is wanted: at first its last lines, later from where it was
        left. Nodes that cannot are in the answer."""
        ...

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """The files at a path on one node of a job, below the folder it works in."""
        ...

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        """A piece of a file on one node of a job, and whether it was the last."""
        ...

    async def stop(self) -> None:
        """End orderly: agents told, connections closed."""
        ...


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
