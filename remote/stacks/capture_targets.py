"""The processes that a capture reads: ranks, the processes below them, and peers that they wait for."""

from ..proc.activity import pids_below
from ..proc.procfs import GONE
from ..proc.programs import child_role
from .py_spy import StackError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ..proc.activity import ProcessState
    from ..proc.procfs import ProcFs
    from ..samplers.process_snapshot import ChildRef, ProcessSnapshot, RankRef
    from .capture import CaptureRequest

    Fields = dict[str, Any]

#: Processes read below one rank, the oldest ones.
MAX_CHILDREN = 64


class PeerRef(object):
    """A process that a capture finds itself, as far as it needs it: one that ranks wait for, or a new one below `rank`.

    `rank` is None for a process that is not in the job.
    """

    def __init__(self, pid: int, start_ticks: int, job: str, attempt: int, rank: "int | None" = None) -> None:
        self.pid, self.start_ticks, self.job, self.attempt, self.rank = pid, start_ticks, job, attempt, rank


class Target(object):
    """One process to read."""

    def __init__(self, ref: "RankRef | ChildRef | PeerRef", role: str) -> None:
        self.fields: "Fields" = {
            "job": ref.job, "attempt": ref.attempt, "rank": ref.rank,
            "pid": ref.pid, "start_ticks": ref.start_ticks, "role": role,
        }  # fmt: skip
        self.pid, self.start_ticks = ref.pid, ref.start_ticks
        self.state: "ProcessState | None" = None
        self.previous: "ProcessState | None" = None
        self.failure: "StackError | None" = None  # lasting for this capture


def targets_of(seen: "ProcessSnapshot", request: "CaptureRequest") -> "list[Target]":
    """The listed ranks and processes below them that a request is about."""
    jobs = request.jobs
    ranks = [rank for rank in seen.ranks if jobs is None or rank.job in jobs]
    targets = [Target(rank, "rank") for rank in sorted(ranks, key=lambda rank: (rank.job, rank.rank or 0, rank.pid))]
    counts: "dict[tuple[str, int | None], int]" = {}
    for child in sorted(seen.children, key=lambda child: child.start_ticks):
        parent = (child.job, child.rank)
        counts[parent] = counts.get(parent, 0) + 1
        if (jobs is None or child.job in jobs) and counts[parent] <= MAX_CHILDREN:
            targets.append(Target(child, child.role))
    return [target for target in targets if request.only is None or target.pid in request.only]


def new_children(
    procfs: "ProcFs", ranks: "Sequence[RankRef]", targets: "list[Target]", listed_pids: "Sequence[int]"
) -> "list[Target]":
    """The processes below ranks that started after the last listing: a rank may wait for one of them."""
    added: "list[Target]" = []
    listed, captured = set(listed_pids), {target.pid for target in targets}
    for rank in ranks:
        if rank.pid not in captured:
            continue
        for pid in [pid for pid in pids_below(procfs, rank.pid) if pid not in listed][:MAX_CHILDREN]:
            try:
                stat = procfs.stat(pid)
            except GONE + (PermissionError, ValueError, IndexError):
                continue
            listed.add(pid)
            ref = PeerRef(pid, stat.start_ticks, rank.job, rank.attempt, rank.rank)
            added.append(Target(ref, child_role([], stat.comm)))
    return added


def peer_targets(procfs: "ProcFs", request: "CaptureRequest", others: "list[Target]") -> "list[Target]":
    """The processes that the request names as peers, also those that have ended; not those that are read anyway."""
    targets: "list[Target]" = []
    read = {target.pid for target in others}
    for pid, job, attempt in request.peers:
        if pid in read:
            continue
        try:
            target = Target(PeerRef(pid, procfs.stat(pid).start_ticks, job, attempt), "peer")
        except GONE + (PermissionError, ValueError, IndexError):
            target = Target(PeerRef(pid, 0, job, attempt), "peer")
            target.failure = StackError("gone", "no process with pid %d" % pid)
        targets.append(target)
    return targets
