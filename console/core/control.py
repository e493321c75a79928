"""What a view, a headless command or an HTTP client may ask of whoever produces the records.

Five protocols, each with its request and answer types; `Control` is all of them. The fleet implements it live, and
replay for a recorded session.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..records import Failure

if TYPE_CHECKING:
    from ..config.diff import Changes
    from ..config.model import Config
    from ..config.read_only import Change, ReadOnly
    from .job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder

# -- nodes -------------------------------------------------------------------------------------------------------------


class ExamReply(Protocol):
    """A node's answer to `Nodes.examine`: the agent's list of checks in `value`, or a `failure`."""

    @property
    def node(self) -> str:
        """Name of the node."""
        ...

    @property
    def value(self) -> Any:
        """The answer; None where there is a failure."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why there is no answer."""
        ...

    @property
    def rtt_ns(self) -> int | None:
        """Shortest round trip through the agent; None where it was not measured."""
        ...


class Nodes(Protocol):
    """The nodes of the fleet: connect, disconnect, examine."""

    async def reconnect(self, node: str) -> None:
        """Connect to a node again now. Raises KeyError for a node that is not in the fleet."""
        ...

    async def remove_node(self, node: str) -> None:
        """Disconnect from a node and stop connecting to it; its records stay."""
        ...

    async def add_nodes(self, names: str) -> Sequence[str]:
        """Start connecting to the nodes of a node set; returns those that are new. Raises ConfigError."""
        ...

    async def apply(self, config: Config) -> Changes:
        """Follow a changed configuration: nodes are added, removed or reconnected."""
        ...

    async def examine(self, nodes: Sequence[str]) -> Sequence[ExamReply]:
        """Run the doctor's checks on these nodes, over the existing connections."""
        ...


# -- captures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaptureRequest:
    """What to capture. The caller chooses the id (`new_capture`), under which the store has the stacks."""

    id: str
    jobs: tuple[str, ...] | None = None  # None: all
    samples: int = 1
    every_s: float = 0.3  # between samples
    flight: bool = True  # also read what communication libraries recorded, where available
    flight_pipe: bool = False  # ranks may be made to write their dump: that changes the job
    only: tuple[tuple[str, int], ...] | None = None  # (node, pid); None: all ranks and their child processes
    locals: tuple[str, ...] = ()  # variables to read: NAME, or FUNCTION:NAME
    native: tuple[tuple[str, int], ...] = ()  # (node, pid) whose native frames are read too, which pauses them


class NodeCaptureCounts(msgspec.Struct, frozen=True):
    """What one node read, all samples together."""

    ranks: int
    processes: int  # ranks and their child processes
    samples: int
    statuses: dict[str, int]  # status of a read → how often
    spread_ns: int | None  # between the first and the last read of /proc, in the worst sample
    stopped_since: int  # processes found stopped after they were read and not before: by another tool
    last_seq: int  # of the agent's last record of this capture


@dataclass(frozen=True)
class CaptureResult:
    """The result of a capture. A node is in `nodes`, or in `failures` with its reason."""

    id: str
    at: int  # instant of the first sample, CLOCK_REALTIME of the console, ns
    nodes: Mapping[str, NodeCaptureCounts]
    failures: Mapping[str, Failure]


def new_capture() -> str:
    """A random capture id."""
    return secrets.token_hex(6)


class Captures(Protocol):
    """Stack captures."""

    async def capture(self, order: CaptureRequest) -> CaptureResult:
        """Read the stacks of all ranks at one instant. Returns when their records have passed the bus, or on timeout.

        Partial results are in the store meanwhile, under the request's id. Raises ReadOnly where `flight_pipe` is not
        allowed.
        """
        ...


# -- clocks ------------------------------------------------------------------------------------------------------------


class Clocks(Protocol):
    """Clock probes between nodes."""

    def want_clocks(self, who: str, wanted: bool) -> None:
        """Probe clocks continuously while at least one requester, identified by `who`, wants it.

        Results arrive as records. No effect where `[clock]` forbids it, or without nodes.
        """
        ...


# -- jobs --------------------------------------------------------------------------------------------------------------


class Jobs(Protocol):
    """Jobs that gconsole starts. A node that cannot answer has a `Failure` in the result."""

    async def probe_job(self, nodes: Sequence[str], question: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
        """Whether a job could run on these nodes."""
        ...

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        """Copy a folder of this machine into `workdir` of these nodes; only differences are sent. Raises ReadOnly."""
        ...

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        """Start a job on all of its nodes, or on none; empty where it runs.

        Else each node that failed, and those whose started part could not be ended again. Raises ReadOnly.
        """
        ...

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        """End every process of a job on these nodes: SIGTERM, and SIGKILL after the grace. Raises ReadOnly."""
        ...

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        """Publish a job's output as records: its last `tail` lines, and with `follow` all later ones.

        Returns when the existing output has passed the bus, with the nodes that failed.
        """
        ...

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        """Publish a job's output while `wanted`: the last lines at first, later from where it was left."""
        ...

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """The files at a path on one node, below the job's working folder."""
        ...

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        """A piece of a file on one node, and whether it was the last."""
        ...


# -- recordings --------------------------------------------------------------------------------------------------------


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which records a session keeps. Empty: all."""

    nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    every_s: float = 0.0  # at most one figure per entity in this many seconds; events are all kept
    locals: bool = False  # keep variables of frames
    anonymous: bool = False  # replace names of hosts and users


@dataclass(frozen=True)
class ActiveRecording:
    """A recording in progress."""

    name: str
    began: int  # console CLOCK_REALTIME, ns
    records: int  # that are safely on disk
    bytes: int
    trouble: str = ""  # why nothing can be written at the moment; empty while all is well
    path: Path | None = None  # its folder


@dataclass(frozen=True)
class CrashedRecording:
    """How to continue as a console that crashed while it recorded. `name_of` gives the recorded name of a node."""

    console_id: str  # lingering agents wait for a console of this id
    seq: int  # number of the last record of its own
    agents: Mapping[str, tuple[str, int]]  # node → its agent, and the last recorded number of that agent
    name_of: Callable[[str], str] = str
    broke_off: int = 0  # arrival of the last record, console CLOCK_REALTIME, ns

    def agent_of(self, node: str) -> tuple[str, int] | None:
        """The agent of a node of the fleet, and its last recorded number."""
        return self.agents.get(self.name_of(node))


class AgentAdopter(Protocol):
    """Adopts the agents that a crashed console left running."""

    def is_awaited(self, left: CrashedRecording) -> bool:
        """Whether any of those agents may still linger."""
        ...

    async def go_on_as(self, left: CrashedRecording) -> None:
        """Take over that console's identity and receive what its agents have buffered; this console's agents end."""
        ...


class Recordings(Protocol):
    """Recordings of this console."""

    def now(self) -> Sequence[ActiveRecording]:
        """Those in progress, oldest first."""
        ...

    async def start(self, name: str, selection: Selection | None = None) -> bool:
        """Start recording; true where a crashed session of that name is resumed. Raises SessionError."""
        ...

    async def stop(self, name: str) -> ActiveRecording:
        """Stop one and return its final state. Raises SessionError."""
        ...


# -- all of it ---------------------------------------------------------------------------------------------------------


class Control(Nodes, Captures, Clocks, Jobs, Protocol):
    """Everything that can be asked of a live fleet or a replay."""

    @property
    def recordings(self) -> Recordings | None:
        """None where nothing can be recorded: in a replay."""
        ...

    async def mark(self, text: str) -> None:
        """Publish a user's note about this instant, as a record."""
        ...

    def refusal(self, change: Change) -> ReadOnly | None:
        """Why this console may not make that change; None where it may. Making it all the same raises the reason."""
        ...

    async def stop(self) -> None:
        """Stop orderly: agents end, connections close."""
        ...
