"""Many meetings: who is the last again and again, what that costs, and whether it can be chance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from statistics import median
from typing import Final

from .lateness import Lateness, RankLateness, lateness
from .sync_points import SyncPoint

#: Somebody like the others would be the last as often by chance this seldom, over all ranks together.
CHANCE: Final = 0.01
#: Bins of the histogram of lateness, ns: upper ends.
BINS_NS: Final = tuple(int(scale * step) for scale in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 2, 5))

#: (job, attempt, rank)
RankKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class RankSkew:
    """One rank over all meetings that could be judged. Lateness is after the first to arrive, ns.

    `share_last` is of the meetings that are resolved; `chance` how likely a rank like the others were last as often.
    """

    job: str
    attempt: int
    rank: int
    node: str
    meetings: int
    resolved: int  # of those, meetings with a last
    last: int  # of those, this one was (among) the last
    share_last: float | None
    chance: float | None
    median_ns: int
    p99_ns: int
    bound_ns: int
    median_after_median_ns: int
    behind_ns: int | None  # median of how far it was behind the others when it was last
    behind_bound_ns: int | None
    caused_gpu_s: float  # what others waited for it, together: GPU-seconds with one GPU a rank
    waited_gpu_s: float  # what it waited for others, where that is resolved
    trend_ns: int | None  # median lateness of the second half of the meetings less that of the first
    is_culprit: bool  # last more often than chance allows

    @property
    def key(self) -> RankKey:
        return self.job, self.attempt, self.rank

    @property
    def is_resolved(self) -> bool:
        """Whether its lateness is more than the clocks' error."""
        return self.median_ns > self.bound_ns


@dataclass(frozen=True, slots=True)
class Share:
    """Some ranks that have something in common: a node, a process group."""

    name: str
    ranks: int
    last: int  # resolved meetings that one of them was last at
    caused_gpu_s: float


@dataclass(frozen=True, slots=True)
class JobSkew:
    """All meetings of one job attempt."""

    job: str
    attempt: int
    ranks: tuple[RankSkew, ...]  # culprits first, by what they cost; then the rest by lateness
    judged: tuple[Lateness, ...]  # oldest first
    incomplete: int  # meetings at which some rank's record is missing: nobody can be called last
    by_node: tuple[Share, ...]
    by_group: tuple[Share, ...]

    @property
    def resolved(self) -> int:
        return sum(one.is_resolved for one in self.judged)

    @property
    def unresolved(self) -> int:
        """Meetings at which everybody was closer together than the clocks are good for."""
        return len(self.judged) - self.resolved

    @property
    def culprits(self) -> tuple[RankSkew, ...]:
        return tuple(rank for rank in self.ranks if rank.is_culprit)

    @property
    def histogram(self) -> tuple[tuple[int, int, int], ...]:
        """Of how far behind the last came: (upper end in ns, resolved, unresolved meetings), without empty ends."""
        counts = [[0, 0] for _ in BINS_NS]
        for one in self.judged:
            at = next((number for number, end in enumerate(BINS_NS) if one.behind_ns <= end), len(BINS_NS) - 1)
            counts[at][0 if one.is_resolved else 1] += 1
        used = [number for number, count in enumerate(counts) if any(count)]
        span = range(used[0], used[-1] + 1) if used else range(0)
        return tuple((BINS_NS[number], counts[number][0], counts[number][1]) for number in span)


def skew_by_job(meetings: Iterable[SyncPoint]) -> list[JobSkew]:
    """Lateness by job and attempt. Only meetings with everybody's record are judged; the rest is counted."""
    jobs: dict[tuple[str, int], list[SyncPoint]] = defaultdict(list)
    for sync_point in meetings:
        jobs[sync_point.job, sync_point.attempt].append(sync_point)
    return [_skew(job, attempt, found) for (job, attempt), found in sorted(jobs.items())]


def _skew(job: str, attempt: int, meetings: Sequence[SyncPoint]) -> JobSkew:
    ordered = sorted(meetings, key=lambda sync_point: sync_point.arrivals[0].at.ns)
    judged = tuple(lateness(one) for one in ordered if one.is_whole)
    by_rank: dict[int, list[tuple[Lateness, RankLateness]]] = defaultdict(list)
    for one in judged:
        for late in one.ranks:
            by_rank[late.rank].append((one, late))
    ranks = [_rank(job, attempt, rank, found, len(by_rank)) for rank, found in by_rank.items()]
    ranks.sort(key=lambda one: (not one.is_culprit, -one.caused_gpu_s, -one.median_ns, one.rank))
    nodes = {rank: found[-1][1].node for rank, found in by_rank.items()}
    groups = {one.sync_point.group for one in judged}
    return JobSkew(
        job, attempt, tuple(ranks), judged, sum(not one.is_whole for one in ordered),
        _shares(judged, {rank: (node,) for rank, node in nodes.items()}),
        tuple(_group_share(group, judged) for group in sorted(groups)),
    )  # fmt: skip


def _rank(job: str, attempt: int, rank: int, found: Sequence[tuple[Lateness, RankLateness]], among: int) -> RankSkew:
    resolved = [one for one, _ in found if one.is_resolved]
    last = [one for one in resolved if rank in one.last]
    late = sorted(one.after_first_ns for _, one in found)
    share = len(last) / len(resolved) if resolved else None
    chance = _chance(resolved, len(last)) if resolved else None
    half = len(found) // 2
    trend = None
    if half >= 4:
        first, second = ([one.after_first_ns for _, one in part] for part in (found[:half], found[half:]))
        trend = int(median(second) - median(first))
    return RankSkew(
        job=job, attempt=attempt, rank=rank, node=found[-1][1].node, meetings=len(found), resolved=len(resolved),
        last=len(last), share_last=share, chance=chance, median_ns=int(median(late)),
        p99_ns=late[min(len(late) - 1, int(0.99 * len(late)))],
        bound_ns=int(median(one.bound_ns for _, one in found)),
        median_after_median_ns=int(median(one.after_median_ns for _, one in found)),
        behind_ns=int(median(one.behind_ns for one in last)) if last else None,
        behind_bound_ns=int(median(one.bound_ns for one in last)) if last else None,
        caused_gpu_s=sum(one.caused_ns / len(one.last) for one in last) / 1e9,
        waited_gpu_s=sum(late.waited_ns for one, late in found if one.is_resolved and rank not in one.last) / 1e9,
        trend_ns=trend, is_culprit=bool(last) and chance is not None and chance * among <= CHANCE,
    )  # fmt: skip


def _chance(resolved: Sequence[Lateness], last: int) -> float:
    """How likely a rank would be among the last at so many of these meetings, if all were alike (binomial)."""
    share = sum(len(one.last) / len(one.ranks) for one in resolved) / len(resolved)
    return binomial_tail(len(resolved), last, share)


def binomial_tail(trials: int, least: int, share: float) -> float:
    """The chance of at least so many of the trials, each with that share."""
    if least <= 0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return 0.0
    logs = (
        lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) + k * log(share) + (trials - k) * log(1.0 - share)
        for k in range(least, trials + 1)
    )
    return min(1.0, sum(exp(one) for one in logs))


def _shares(judged: Sequence[Lateness], names: Mapping[int, Sequence[str]]) -> tuple[Share, ...]:
    last: dict[str, int] = defaultdict(int)
    caused: dict[str, float] = defaultdict(float)
    ranks: dict[str, int] = defaultdict(int)
    for own in names.values():
        for name in own:
            ranks[name] += 1
    for one in judged:
        for name in {name for rank in one.last for name in names.get(rank, ())}:
            last[name] += 1
        for rank in one.last:
            for name in names.get(rank, ()):
                caused[name] += one.caused_ns / len(one.last) / 1e9
    found = [Share(name, ranks[name], last[name], caused[name]) for name in ranks]
    return tuple(sorted(found, key=lambda one: (-one.caused_gpu_s, -one.last, one.name)))


def _group_share(group: str, judged: Sequence[Lateness]) -> Share:
    own = [one for one in judged if one.sync_point.group == group]
    members = {late.rank for one in own for late in one.ranks}
    return Share(group, len(members), sum(one.is_resolved for one in own), sum(one.caused_ns for one in own) / 1e9)
