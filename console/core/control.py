"""The control interface between clients (views, headless commands, HTTP) and record sources.

Six protocols with their request and result types; `Control` combines them. The live fleet and
replay implement it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from ..records import Failure
from .wants import Want

if TYPE_CHECKING:
    from ..config.diff import Changes
    from ..config.model import Change, Config, ReadOnly
    from .job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder

# -- nodes -------------------------------------------------------------------------------------------------------------


class NodeAnswer(Protocol):
    """A node's reply to `Nodes.examine` or `Captures.profile`: what the agent sent in `value`, or a `failure`."""

    @property
    def node(self) -> str:
        """Name of the node."""

    @property
    def value(self) -> Any:
        """The reply; None on failure."""

    @property
    def failure(self) -> Failure | None:
        """The failure, or None."""

    @property
    def rtt_ns(self) -> int | None:
        """Shortest round trip through the agent; ns; None if not measured."""

    @property
    def via(self) -> str:
        """The gateway that reaches the node, and checked its host key; "" for none."""


class Nodes(Protocol):
    """The nodes of the fleet: connect, disconnect, examine."""

    async def reconnect(self, node: str) -> None:
        """Connect to a node again now. Raises KeyError for an unknown node."""

    async def remove_node(self, node: str) -> None:
        """Disconnect from a node permanently; its records are kept."""

    async def add_nodes(self, names: str) -> Sequence[str]:
        """Connect to the nodes of a node set; returns the new ones. Raises ConfigError."""

    async def apply(self, config: Config) -> Changes:
        """Apply a changed configuration: nodes are added, removed or reconnected."""

    async def examine(self, nodes: Sequence[str]) -> Sequence[NodeAnswer]:
        """Run the doctor's checks on these nodes, over the existing connections."""


# -- captures ----------------------------------------------------------------------------------------------------------


class PeerProcess(NamedTuple):
    """A process that ranks of a job wait for and that is not in the job: a controller, a server."""

    node: str
    pid: int
    job: str
    attempt: int


class CaptureRequest(msgspec.Struct, frozen=True):
    """What to capture. The caller chooses the id (`new_capture`), which is the key of the capture in the store."""

    id: str
    jobs: tuple[str, ...] | None = None  # None: all
    samples: int = 1
    every_s: float = 0.3  # seconds between samples
    flight: bool = True  # also read collectives from communication libraries, if available
    flight_pipe: bool = False  # make ranks write their dump, which affects the job
    only: tuple[tuple[str, int], ...] | None = None  # (node, pid); None: all ranks and their child processes
    locals: tuple[str, ...] = ()  # variables to read: NAME, or FUNCTION:NAME
    native: tuple[tuple[str, int], ...] = ()  # (node, pid) whose native frames are also read, which pauses them
    sockets: tuple[tuple[str, str], ...] = ()  # (local, remote) addresses of TCP ends whose holders are wanted
    peers: tuple[PeerProcess, ...] = ()  # further processes to read
    tasks: bool = False  # also read the asyncio tasks of threads that run an event loop
    outputs: tuple[str, ...] = ()  # jobs of whose living ranks the end of the output is wanted


class NodeCaptureCounts(msgspec.Struct, frozen=True):
    """Counts of one node over all samples."""

    ranks: int
    processes: int  # ranks and their child processes
    samples: int
    statuses: dict[str, int]  # status of a read: count
    spread_ns: int | None  # time between first and last read of /proc, worst sample
    stopped_since: int  # processes stopped by another tool during the capture
    last_seq: int  # of the agent's last record of this capture


class CaptureResult(msgspec.Struct, frozen=True):
    """The result of a capture. A node is in `nodes`, or in `failures` with its reason."""

    id: str
    began_ns: int  # time of the first sample, CLOCK_REALTIME of the console
    nodes: Mapping[str, NodeCaptureCounts]
    failures: Mapping[str, Failure]


def new_capture() -> str:
    """A random capture id."""
    return secrets.token_hex(6)


class Captures(Protocol):
    """Stack captures."""

    async def capture(self, order: CaptureRequest) -> CaptureResult:
        """Read the stacks of all ranks at one instant. Returns when their records have passed the bus, or on timeout.

        The store has partial results under the request's id. Raises ReadOnly if `flight_pipe` is not allowed.
        """

    async def profile(self, blocks: int) -> Sequence[NodeAnswer]:
        """Sample the stacks of all ranks for that many blocks of two seconds; the agent's profiles in `value`."""


# -- clocks ------------------------------------------------------------------------------------------------------------


class Clocks(Protocol):
    """Clock probes between nodes."""

    def request_clock_probes(self, who: str, wanted: bool) -> None:
        """Probe clocks continuously while at least one requester, identified by `who`, wants it.

        Results are records. No effect if `[clock]` disables probing, or without nodes.
        """


# -- figures -----------------------------------------------------------------------------------------------------------


class FigureRates(Protocol):
    """Rates at which a client needs records."""

    def want(self, who: str, *wants: Want) -> None:
        """Replace the rates that the requester `who` needs: kinds of records of some nodes, records per second.

        Kinds that no requester needs at full rate may come as digests (`[agent] digest_s`). Without `wants`, the
        earlier ones of `who` are withdrawn. Samples arrive within one tick.
        """

    def in_background(self, is_hidden: bool) -> None:
        """Whether the screen shows another cluster: then such kinds come as digests, also without `digest_s`."""


# -- jobs --------------------------------------------------------------------------------------------------------------


class Jobs(Protocol):
    """Jobs that gconsole starts. Unreachable nodes have a `Failure` in the result."""

    async def probe_job(self, nodes: Sequence[str], request: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
        """Check whether a job can run on these nodes."""

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        """Copy a local folder into `workdir` of these nodes; only differences are sent. Raises ReadOnly."""

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        """Start a job on all of its nodes, or on none; empty on success.

        Otherwise the nodes that failed, and those on which the started part could not be ended. Raises ReadOnly.
        """

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        """End all processes of a job on these nodes: SIGTERM, then SIGKILL after `grace_s`. Raises ReadOnly."""

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        """Publish a job's output as records: its last `tail` lines, and with `follow` all later ones.

        Returns when the existing output has passed the bus, with the nodes that failed.
        """

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        """Publish a job's output while `wanted`: first the last lines, later from the previous position."""

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """Files at a path on one node, below the job's working directory."""

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        """(data from `offset`, whether it is the end) of a file on one node."""


# -- recordings --------------------------------------------------------------------------------------------------------


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which records a session keeps; by default all."""

    nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # numbers on all nodes or on one: "0-3", "node2:7"
    every_s: float = 0.0  # minimum interval of metrics per entity; events are all kept
    locals: bool = False  # keep variables of frames
    anonymous: bool = False  # replace names of hosts and users


class ActiveRecording(msgspec.Struct, frozen=True):
    """A recording in progress."""

    name: str
    began: int  # console CLOCK_REALTIME, ns
    records: int  # synced to disk
    bytes: int
    trouble: str = ""  # why nothing can be written at the moment, or ""
    path: Path | None = None  # its folder


class BlackBoxStatus(msgspec.Struct, frozen=True):
    """The black box of a console: the last minutes of its records on disk."""

    since: int  # its oldest instant, console CLOCK_REALTIME, ns
    bytes: int
    trouble: str = ""  # why nothing can be written at the moment, or ""


class KeptRecords(msgspec.Struct, frozen=True):
    """A session made of black boxes."""

    path: Path
    began: int  # console CLOCK_REALTIME, ns
    ended: int
    records: int
    bytes: int
    wanted_ns: int  # the length that was requested
    is_limited: bool  # the older records were deleted: limit of the black box; else its console started only then
    damaged_bytes: int = 0
    lost: int = 0  # records that could not be written: a full disk, or too many at once

    @property
    def covered_ns(self) -> int:
        """Its length."""
        return self.ended - self.began


class CrashedRecording(msgspec.Struct, frozen=True):
    """State of a console that crashed while recording. `name_of` maps a node to its recorded name."""

    console_id: str  # id that its lingering agents accept
    seq: int  # sequence number of its own last record
    agents: Mapping[str, tuple[str, int]]  # node: (agent id, sequence number of its last recorded record)
    name_of: Callable[[str], str] = str
    broke_off: int = 0  # arrival of the last record, console CLOCK_REALTIME, ns

    def agent_of(self, node: str) -> tuple[str, int] | None:
        """(agent id, last recorded sequence number) of a node, or None."""
        return self.agents.get(self.name_of(node))


class AgentAdopter(Protocol):
    """Adopts the agents that a crashed console left running."""

    def may_have_agents(self, left: CrashedRecording) -> bool:
        """Whether any of those agents may still be running."""

    async def adopt_agents(self, left: CrashedRecording) -> None:
        """Adopt that console's identity and receive its agents' buffered records; this console's own agents end."""


class Recordings(Protocol):
    """Recordings of this console."""

    def active(self) -> Sequence[ActiveRecording]:
        """Return the recordings in progress, oldest first."""

    async def start(self, name: str, selection: Selection | None = None, since_s: float = 0.0) -> bool:
        """Start recording; true if a crashed session of that name is resumed. Raises SessionError.

        The recording begins with the last `since_s` seconds in the black box.
        """

    async def stop(self, name: str) -> ActiveRecording:
        """Stop one and return its final state. Raises SessionError."""

    def black_box(self) -> BlackBoxStatus | None:
        """Return the state of the black box; None if nothing is kept."""

    async def keep_last(self, name: str, last_s: float) -> KeptRecords:
        """Make a session of the last seconds in the black box. Raises SessionError."""


# -- all six ---------------------------------------------------------------------------------------------------------


class Control(Nodes, Captures, Clocks, FigureRates, Jobs, Protocol):
    """All operations of a live fleet or a replay."""

    @property
    def recordings(self) -> Recordings | None:
        """The recordings; None in a replay, which cannot record."""

    async def mark(self, text: str) -> None:
        """Publish a user's note on the current time as a record."""

    def refusal(self, change: Change) -> ReadOnly | None:
        """The reason why a change is not allowed (it is raised if attempted), or None."""

    async def stop(self) -> None:
        """Shut down: agents end, connections close."""
