"""Which jobs run, which of their ranks are there, and why the others are not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..records import NodeState, Rank, RankStat, RankState, RankStatus, Watched

#: Why a rank of the expected 0..world_size-1 is not seen alive; closed.
Why = Literal["exited", "no_permission", "node_lost", "unreachable", "not_found"]

#: So many names stand in a reason; the rest is a number.
NAMED: Final = 4
#: So many ranks are told to be missing, of all jobs together: 16,384 nodes with eight GPUs. A rank may say that there
#: are any number of others; a size beyond what is left of these is not believed, those of the largest jobs first.
MOST_MISSING: Final = 131_072


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One process that is a rank, alive as far as anybody knows. `state` is unknown where its node is lost."""

    job: str
    attempt: int
    rank: int | None  # None: it may not be read, and nothing else tells its number
    local_rank: int | None
    node: str
    pid: int
    start_ticks: int
    gpu: str | None
    state: RankState
    step: int | None
    source: str
    status: RankStatus
    reason: str | None
    watched: Mapping[str, Watched] | None = None  # variables of its code, by name; None where none was read


@dataclass(frozen=True, slots=True)
class MissingRank:
    """A rank nobody sees. `rank` is None for a process that is one, but nobody can say which."""

    rank: int | None
    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Several live processes claim one rank of one attempt; all are in the table, and a person must judge."""

    attempt: int
    rank: int
    claimants: tuple[tuple[str, int], ...]  # (node, pid)

    @property
    def text(self) -> str:
        who = ", ".join(f"{node} pid {pid}" for node, pid in self.claimants)
        return f"rank {self.rank} is claimed by {len(self.claimants)} processes: {who}"


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job at its newest attempt; rows of older attempts are there too, as leftovers with status `stale`."""

    job: str
    attempt: int  # the newest
    world_size: int | None  # None where no rank says; then only processes known to be unread are called missing
    ranks_found: tuple[int, ...]
    ranks_missing: tuple[MissingRank, ...]
    rows: tuple[RankSummary, ...]
    states: Mapping[str, int]  # state → rows of the newest attempt in it
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class JobTable:
    """All jobs, by name."""

    jobs: tuple[JobSummary, ...]

    @property
    def rows(self) -> tuple[RankSummary, ...]:
        return tuple(row for job in self.jobs for row in job.rows)


def job_table(ranks: Iterable[Rank], stats: Iterable[RankStat], nodes: Iterable[NodeState]) -> JobTable:
    """Fold current records into jobs. Of several records of one process, or one node, the last one counts.

    A rank is *found* where a live process on a reachable node says it is that rank of the newest attempt. A guess about
    a process that may not be read finds nobody. The same records in another order of processes give the same table.
    """
    current = {(rank.node, rank.pid, rank.start_ticks): rank for rank in ranks}
    doing = {(stat.node, stat.pid, stat.start_ticks): stat for stat in stats}
    unreachable = {state.node: state for state in nodes}
    for name in [name for name, state in unreachable.items() if state.state in ("ok", "removed")]:
        del unreachable[name]
    by_job: dict[str, list[Rank]] = defaultdict(list)
    for rank in current.values():
        if rank.status != "withdrawn":
            by_job[rank.job].append(rank)
    sizes = _world_sizes(by_job)
    return JobTable(tuple(_job(name, by_job[name], sizes[name], doing, unreachable) for name in sorted(by_job)))


def _job(
    name: str,
    ranks: list[Rank],
    world_size: int | None,
    doing: Mapping[tuple[str, int, int], RankStat],
    unreachable: Mapping[str, NodeState],
) -> JobSummary:
    newest = _newest(ranks)
    ranks = sorted(ranks, key=_order)
    rows = tuple(_row(rank, newest, doing, unreachable) for rank in ranks if rank.status != "exited")
    live = [row for row in rows if row.attempt == newest and row.status == "present"]
    ranks_found = sorted({row.rank for row in live if row.rank is not None and row.node not in unreachable})
    present = [rank for rank in ranks if rank.attempt == newest]
    return JobSummary(
        job=name,
        attempt=newest,
        world_size=world_size,
        ranks_found=tuple(ranks_found),
        ranks_missing=_missing(world_size, frozenset(ranks_found), present, unreachable),
        rows=rows,
        states=dict(sorted(Counter(row.state for row in rows if row.attempt == newest).items())),
        conflicts=_conflicts(live),
    )


def _order(rank: Rank) -> tuple[bool, int, int, str, int, int]:
    return (rank.rank is None, rank.rank or 0, -rank.attempt, rank.node, rank.pid, rank.start_ticks)


def _row(
    rank: Rank, newest: int, doing: Mapping[tuple[str, int, int], RankStat], unreachable: Mapping[str, NodeState]
) -> RankSummary:
    stat = None if rank.node in unreachable else doing.get((rank.node, rank.pid, rank.start_ticks))
    # the agent sees only its own node: elsewhere the job may have moved on
    is_leftover = rank.status == "present" and rank.attempt < newest
    return RankSummary(
        job=rank.job,
        attempt=rank.attempt,
        rank=rank.rank,
        local_rank=rank.local_rank,
        node=rank.node,
        pid=rank.pid,
        start_ticks=rank.start_ticks,
        gpu=rank.gpu,
        state=stat.state if stat else "unknown",
        step=stat.step if stat else None,
        source=rank.source,
        status="stale" if is_leftover else rank.status,
        reason=f"left over from attempt {rank.attempt}; the job is at {newest}" if is_leftover else rank.reason,
        watched=stat.watched if stat else None,
    )


def _newest(ranks: Iterable[Rank]) -> int:
    return max(rank.attempt for rank in ranks)


def _world_sizes(by_job: Mapping[str, Sequence[Rank]]) -> dict[str, int | None]:
    """How many ranks each job has, as far as that can be believed."""
    left, sizes = MOST_MISSING, dict[str, int | None]()
    for name in sorted(by_job, key=lambda name: (-len(by_job[name]), name)):
        newest = _newest(by_job[name])
        size = _world_size(rank for rank in by_job[name] if rank.attempt == newest)
        if size is not None and size > left:
            size = None
        sizes[name] = size
        left -= size or 0
    return sizes


def _world_size(ranks: Iterable[Rank]) -> int | None:
    """What most ranks say; of two sizes said equally often the larger, which hides nobody."""
    sizes = Counter(rank.world_size for rank in ranks if rank.world_size is not None)
    return max(sizes, key=lambda size: (sizes[size], size)) if sizes else None


def _conflicts(live: Sequence[RankSummary]) -> tuple[Conflict, ...]:
    claims: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for row in live:
        if row.rank is not None and row.state != "zombie":
            claims[row.attempt, row.rank].append((row.node, row.pid))
    return tuple(
        Conflict(attempt, rank, tuple(sorted(who))) for (attempt, rank), who in sorted(claims.items()) if len(who) > 1
    )


def _missing(
    world_size: int | None, ranks_found: frozenset[int], ranks: Sequence[Rank], unreachable: Mapping[str, NodeState]
) -> tuple[MissingRank, ...]:
    unnumbered = [rank for rank in ranks if rank.status == "no_permission" and rank.rank is None]
    if world_size is None:
        return tuple(MissingRank(None, "no_permission", _denied([rank])) for rank in unnumbered)
    by_number: dict[int, list[Rank]] = defaultdict(list)
    for rank in ranks:
        if rank.rank is not None:
            by_number[rank.rank].append(rank)
    never_seen = _never_seen(unnumbered, unreachable)
    missing = []
    for number in range(world_size):
        if number in ranks_found:
            continue
        why, reason = _last_seen(by_number.get(number, ()), unreachable) or never_seen
        missing.append(MissingRank(number, why, reason))
    return tuple(missing)


def _last_seen(records: Sequence[Rank], unreachable: Mapping[str, NodeState]) -> tuple[Why, str] | None:
    """Why a rank that has been seen is not seen now; what may still be alive before what is certainly dead."""
    for rank in records:
        if rank.status == "present" and rank.node in unreachable:
            if unreachable[rank.node].state == "lost":
                return "node_lost", f"node {rank.node} lost"
            return "unreachable", f"node {rank.node} unreachable"
    for rank in records:
        if rank.status == "no_permission":
            return "no_permission", _denied([rank])
    for rank in reversed(records):  # of several deaths any is true; the last in order is the same each time
        if rank.status == "exited":
            return "exited", f"exited: {rank.reason or 'nobody saw how'} ({rank.node} pid {rank.pid})"
    return None


def _never_seen(unnumbered: Sequence[Rank], unreachable: Mapping[str, NodeState]) -> tuple[Why, str]:
    if unnumbered:
        return "no_permission", _denied(unnumbered)
    if unreachable:
        return "unreachable", f"not found; unreachable: {_some(sorted(unreachable))}"
    return "not_found", "not found"


def _denied(ranks: Sequence[Rank]) -> str:
    reason = ranks[0].reason or "it may not be read"
    if len(ranks) == 1:
        return f"no permission: {reason} ({ranks[0].node})"
    nodes = _some(sorted({rank.node for rank in ranks}))
    return f"no permission: {len(ranks)} processes on {nodes} could be it, such as: {reason}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
