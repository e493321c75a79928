"""Running jobs, their ranks, and why expected ranks are missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ..records import NodeState, Rank, RankStat, RankState, RankStatus, Watched
from ..text.format import some

#: Why a rank of the expected 0..world_size-1 is missing.
Why = Literal["exited", "no_permission", "node_lost", "unreachable", "elsewhere", "not_found"]

#: How the names of jobs begin of which nothing is known that other nodes share (`job_key` of the agent).
LOCAL: Final = "local~"
#: Names listed in a reason; the rest is counted.
NAMED: Final = 4
#: Maximum missing ranks over all jobs (16,384 nodes × 8 GPUs): bounds implausible world sizes, largest jobs first.
MOST_MISSING: Final = 131_072


class RankSummary(msgspec.Struct, frozen=True):
    """One process that is a rank; `state` is unknown if its node is lost."""

    job: str
    attempt: int
    rank: int | None  # None: no permission to read it
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
    watched: Mapping[str, Watched] | None = None  # watched variables by name; None if none were read


class MissingRank(msgspec.Struct, frozen=True):
    """An expected rank without a live process; `rank` is None for a rank process whose number is unknown."""

    rank: int | None
    why: Why
    reason: str


class Conflict(msgspec.Struct, frozen=True):
    """Several live processes claim one rank of one attempt."""

    attempt: int
    rank: int
    claimants: tuple[tuple[str, int], ...]  # (node, pid)

    @property
    def text(self) -> str:
        """The conflict as a sentence."""
        who = ", ".join(f"{node} pid {pid}" for node, pid in self.claimants)
        return f"rank {self.rank} is claimed by {len(self.claimants)} processes: {who}"


class JobRanks(msgspec.Struct, frozen=True):
    """One job at its newest attempt; processes of older attempts are included with status `stale`."""

    job: str
    attempt: int  # the newest
    world_size: int | None  # None: unknown; then only unreadable processes are missing
    ranks_found: tuple[int, ...]
    ranks_missing: tuple[MissingRank, ...]
    rows: tuple[RankSummary, ...]
    states: Mapping[str, int]  # state → rows of the newest attempt in it
    conflicts: tuple[Conflict, ...]


class JobTable(msgspec.Struct, frozen=True):
    """All jobs, by name."""

    jobs: tuple[JobRanks, ...]

    @property
    def rows(self) -> tuple[RankSummary, ...]:
        """Ranks of all jobs."""
        return tuple(row for job in self.jobs for row in job.rows)


def job_table(ranks: Iterable[Rank], stats: Iterable[RankStat], nodes: Iterable[NodeState]) -> JobTable:
    """Fold current records into jobs; the last record of a process or node counts.

    A rank is *found* if a live process on a reachable node reports it in the newest attempt; unreadable processes do
    not count. The result does not depend on the order of processes.
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
) -> JobRanks:
    newest = _newest(ranks)
    ranks = sorted(ranks, key=_order)
    rows = tuple(_row(rank, newest, doing, unreachable) for rank in ranks if rank.status != "exited")
    live = [row for row in rows if row.attempt == newest and row.status == "present"]
    ranks_found = sorted({row.rank for row in live if row.rank is not None and row.node not in unreachable})
    present = [rank for rank in ranks if rank.attempt == newest]
    return JobRanks(
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
    # the agent does not know newer attempts on other nodes
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
    """World size of each job; None if unknown or implausible."""
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
    """Most frequent reported size; on a tie the larger one, which hides no rank."""
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
    never_seen = _never_seen(unnumbered, unreachable, _may_span_nodes(world_size, ranks))
    missing = []
    for number in range(world_size):
        if number in ranks_found:
            continue
        why, reason = _last_seen(by_number.get(number, ()), unreachable) or never_seen
        missing.append(MissingRank(number, why, reason))
    return tuple(missing)


def _last_seen(records: Sequence[Rank], unreachable: Mapping[str, NodeState]) -> tuple[Why, str] | None:
    """Why a rank with records is missing; possibly alive before certainly dead."""
    for rank in records:
        if rank.status == "present" and rank.node in unreachable:
            if unreachable[rank.node].state == "lost":
                return "node_lost", f"node {rank.node} lost"
            return "unreachable", f"node {rank.node} unreachable"
    for rank in records:
        if rank.status == "no_permission":
            return "no_permission", _denied([rank])
    for rank in reversed(records):  # the last one, for a deterministic result
        if rank.status == "exited":
            return "exited", f"exited: {rank.reason or 'exit status unknown'} ({rank.node} pid {rank.pid})"
    return None


def _may_span_nodes(world_size: int, ranks: Sequence[Rank]) -> bool:
    """Whether ranks on another node have another job's name there, as nothing says where the ranks meet."""
    is_local = any(rank.job.startswith(LOCAL) for rank in ranks)
    return is_local and all(rank.local_world_size != world_size for rank in ranks)


def _never_seen(
    unnumbered: Sequence[Rank], unreachable: Mapping[str, NodeState], may_span_nodes: bool
) -> tuple[Why, str]:
    if unnumbered:
        return "no_permission", _denied(unnumbered)
    if unreachable:
        return "unreachable", f"not found; unreachable: {some(sorted(unreachable), NAMED)}"
    if may_span_nodes:
        return "elsewhere", "may be on another node: no variable or argument says where the ranks meet"
    return "not_found", "not found"


def _denied(ranks: Sequence[Rank]) -> str:
    reason = ranks[0].reason or "process not readable"
    if len(ranks) == 1:
        return f"no permission: {reason} ({ranks[0].node})"
    nodes = some(sorted({rank.node for rank in ranks}), NAMED)
    return f"no permission: {len(ranks)} unreadable processes on {nodes} may be this rank: {reason}"
