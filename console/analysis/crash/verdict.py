"""Input and output of the diagnosis of a crash: the ends of a job's ranks with their outputs, and the verdict."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import Confidence
from ..hang.verdict import Site

CrashKind = Literal["exception", "oom_killed", "signalled", "node_lost", "hardware", "launcher", "unknown"]
#: What a failure is in the course of a crash: a possible first cause, its effect on others, or the end of the processes
#: that the launcher ordered. `unknown`: could be either.
FailureRole = Literal["cause", "consequence", "teardown", "unknown"]


class CrashFailure(msgspec.Struct, frozen=True):
    """One failure in an output: an exception, a fatal signal, an error of a library or of a launcher."""

    type: str  # ValueError, torch.distributed.DistBackendError, SIGSEGV, srun, …
    message: str  # its first line, at most 500 characters
    category: str  # an id of `categories.CATEGORIES`; "exception" for one without a class of its own
    role: FailureRole
    details: str = ""  # the further lines of the message, at most 2,000 characters
    site: Site | None = None  # the innermost call in the job's own code, else the innermost call
    at_ns: int | None = None  # the time that its lines carry, ns since the epoch; one without a zone is taken as UTC
    at_bound_ns: int | None = None  # resolution of that time
    origin: str = ""  # `Exception in thread …`, `Process …:`: the exception did not end the rank by itself
    rank: int | None = None  # the rank that its lines name: a prefix, or a launcher's table
    node: str | None = None  # the node that its lines name
    pid: int | None = None  # the process that its lines name
    peers: tuple[str, ...] = ()  # addresses, hosts and ranks (`rank 7`) of the other side that it names
    output: str = ""  # path or stream of the output
    line: int = 0  # number of its first line in the output, from 1
    is_uncaught: bool = False  # it certainly ended its process: torch's hook, an error file or a fatal signal shows it
    is_caught: bool = False  # a handler printed it: it may have ended the process, or not
    is_final: bool = True  # whether nothing of the program's work follows: a handled exception is not final


class RankOutput(msgspec.Struct, frozen=True):
    """One output of a rank or of a launcher: its end, or why it is unknown."""

    stream: Literal["stdout", "stderr", "error_file", "file"]
    text: str | None = None
    path: str | None = None
    status: Literal["ok", "unreadable", "missing"] = "ok"
    reason: str | None = None
    written_at_ns: int | None = None  # time of the last change of the file, CLOCK_REALTIME of the node


class RankEnd(msgspec.Struct, frozen=True):
    """One rank of a job at its end. Times are on the cluster clock, with its bound included in the interval."""

    rank: int | None
    node: str | None = None
    pid: int | None = None
    state: Literal["ended", "running", "unknown"] = "ended"
    exit_code: int | None = None  # negative: the signal; None: unknown
    ended_lo_ns: int | None = None  # the process ended not before
    ended_hi_ns: int | None = None  # … and not after
    outputs: tuple[RankOutput, ...] = ()
    children: tuple[int, ...] = ()  # pids of its child processes, as far as known


class NodeFault(msgspec.Struct, frozen=True):
    """A message of the kernel of a node, of a class of `remote/kernel/faults.py`."""

    node: str
    fault: str  # oom_kill, oom_cgroup, segfault, xid, …
    text: str
    pid: int | None = None  # the process that it names, in the PID namespace of the machine
    subject: str | None = None
    at_ns: int | None = None  # about, on the cluster clock
    severity: Literal["error", "warning", "info"] = "error"


class NodeLoss(msgspec.Struct, frozen=True):
    """A node that was lost, or restarted, while the job ran."""

    node: str
    reason: str
    lo_ns: int | None = None
    hi_ns: int | None = None


class LauncherOutput(msgspec.Struct, frozen=True):
    """Output of a launcher (torchrun, srun, mpirun, …), or one that all ranks share."""

    output: RankOutput
    node: str | None = None


class LauncherEnd(msgspec.Struct, frozen=True):
    """A launcher process of a job that ended."""

    node: str
    pid: int
    program: str  # torchrun, srun, …
    exit_code: int | None = None  # negative: the signal
    ended_hi_ns: int | None = None  # when its end was seen, on the common clock


class CrashEvidence(msgspec.Struct, frozen=True):
    """All data on the end of one attempt of a job."""

    job: str
    attempt: int | None = None
    world_size: int | None = None
    ranks: tuple[RankEnd, ...] = ()
    launchers: tuple[LauncherOutput, ...] = ()
    launcher_ends: tuple[LauncherEnd, ...] = ()
    faults: tuple[NodeFault, ...] = ()
    losses: tuple[NodeLoss, ...] = ()


class CrashCulprit(msgspec.Struct, frozen=True):
    """A rank, or a node without a rank, where the first cause is."""

    rank: int | None
    node: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    site: Site | None = None


class FailureGroup(msgspec.Struct, frozen=True):
    """The same failure on some ranks; `text` has `…` for parts that differ between them."""

    ranks: tuple[int, ...]
    text: str  # `type: message`
    category: str
    count: int  # failures in it; may exceed the number of ranks
    unknown_ranks: int = 0  # failures in outputs of which the rank is unknown


class FirstCause(msgspec.Struct, frozen=True):
    """The failure that the others follow from."""

    failure: CrashFailure
    ranks: tuple[int, ...]  # all ranks with the same failure
    nodes: tuple[str, ...] = ()  # and their nodes, as far as known


class AttemptEnd(msgspec.Struct, frozen=True):
    """How one attempt of a job ended: one line of the list for a job that restarts."""

    attempt: int | None
    kind: CrashKind
    ranks: tuple[int, ...]  # culprits
    text: str  # the failure, or the summary
    category: str = ""


class CrashVerdict(msgspec.Struct, frozen=True):
    """The verdict on one job that died. `confidence` is that of the first cause; kind `unknown` names no culprit."""

    job: str
    attempt: int | None
    state: Literal["crashed"]
    kind: CrashKind
    culprits: tuple[CrashCulprit, ...]
    first_cause: FirstCause | None
    cascade: tuple[FailureGroup, ...]  # consequences, the largest group first
    teardown: tuple[int, ...]  # ranks that the launcher ended
    victims: tuple[int, ...]  # ranks with consequences only
    confidence: Confidence
    summary: str  # one sentence
    evidence: tuple[str, ...]  # each names its source
    next_step: str
    attempts: tuple[AttemptEnd, ...] = ()  # all attempts, the oldest first; empty for a single one
    is_deliberate: bool = False  # a person or a scheduler ended the job: no failure
    repeats: bool | None = None  # whether the last two attempts failed the same way; None for a single one
