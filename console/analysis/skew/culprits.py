"""Aggregation over sync points: consistently late ranks, their cost, and statistical significance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from statistics import median
from typing import Final

from .lateness import Lateness, RankLateness, lateness
from .sync_points import SyncPoint

#: Significance level of a culprit, over all ranks together (Bonferroni).
CHANCE: Final = 0.01
#: Bins of the histogram of lateness, ns: upper ends.
BINS_NS: Final = tuple(int(scale * step) for scale in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 2, 5))

#: (job, attempt, rank)
RankKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class RankSkew:
    """Lateness of one rank over all complete sync points, ns after the first arrival.

    `share_last`: share of resolved sync points; `chance`: p-value of being last this often.
    """

    job: str
    attempt: int
    rank: int
    node: str
    meetings: int
    resolved: int  # of those, with a last rank
    last: int  # of those, where this rank was (among) the last
    share_last: float | None
    chance: float | None
    median_ns: int
    p99_ns: int
    bound_ns: int
    median_after_median_ns: int
    behind_ns: int | None  # median lag when it was last
    behind_bound_ns: int | None
    caused_gpu_s: float  # wait time it caused, GPU-seconds with one GPU per rank
    waited_gpu_s: float  # its own wait time at resolved sync points
    trend_ns: int | None  # median lateness of the second half of the sync points less that of the first
    is_culprit: bool  # significantly often last

    @property
    def key(self) -> RankKey:
        """(job, attempt, rank)"""
        return self.job, self.attempt, self.rank

    @property
    def is_resolved(self) -> bool:
        """Whether its lateness exceeds the clock error."""
        return self.median_ns > self.bound_ns


@dataclass(frozen=True, slots=True)
class Share:
    """Aggregate over the ranks of one node or process group."""

    name: str
    ranks: int
    last: int  # resolved sync points where one of them was last
    caused_gpu_s: float


@dataclass(frozen=True, slots=True)
class JobSkew:
    """All sync points of one job attempt."""

    job: str
    attempt: int
    ranks: tuple[RankSkew, ...]  # culprits by cost, then the rest by lateness
    judged: tuple[Lateness, ...]  # oldest first
    incomplete: int  # sync points with missing ranks, not analysed
    by_node: tuple[Share, ...]
    by_group: tuple[Share, ...]

    @property
    def resolved(self) -> int:
        """Sync points with a last rank."""
        return sum(point.is_resolved for point in self.judged)

    @property
    def unresolved(self) -> int:
        """Sync points within the clock error."""
        return len(self.judged) - self.resolved

    @property
    def culprits(self) -> tuple[RankSkew, ...]:
        """Consistent stragglers."""
        return tuple(rank for rank in self.ranks if rank.is_culprit)

    @property
    def histogram(self) -> tuple[tuple[int, int, int], ...]:
        """Histogram of the last rank's lateness: (upper end in ns, resolved, unresolved), without empty ends."""
        counts = [[0, 0] for _ in BINS_NS]
        for point in self.judged:
            bin_ = next((number for number, end in enumerate(BINS_NS) if point.behind_ns <= end), len(BINS_NS) - 1)
            counts[bin_][0 if point.is_resolved else 1] += 1
        used = [number for number, count in enumerate(counts) if any(count)]
        span = range(used[0], used[-1] + 1) if used else range(0)
        return tuple((BINS_NS[number], counts[number][0], counts[number][1]) for number in span)


def skew_by_job(sync_points: Iterable[SyncPoint]) -> list[JobSkew]:
    """Skew per job and attempt; incomplete sync points are only counted."""
    jobs: dict[tuple[str, int], list[SyncPoint]] = defaultdict(list)
    for sync_point in sync_points:
        jobs[sync_point.job, sync_point.attempt].append(sync_point)
    return [_skew(job, attempt, job_sync_points) for (job, attempt), job_sync_points in sorted(jobs.items())]


def _skew(job: str, attempt: int, sync_points: Sequence[SyncPoint]) -> JobSkew:
    ordered = sorted(sync_points, key=lambda sync_point: sync_point.arrivals[0].instant.ns)
    analysed = tuple(lateness(point) for point in ordered if point.is_whole)
    by_rank: dict[int, list[tuple[Lateness, RankLateness]]] = defaultdict(list)
    for point in analysed:
        for late in point.ranks:
            by_rank[late.rank].append((point, late))
    ranks = [_rank(job, attempt, rank, own, len(by_rank)) for rank, own in by_rank.items()]
    ranks.sort(key=lambda point: (not point.is_culprit, -point.caused_gpu_s, -point.median_ns, point.rank))
    nodes = {rank: own[-1][1].node for rank, own in by_rank.items()}
    groups = {point.sync_point.group for point in analysed}
    return JobSkew(
        job, attempt, tuple(ranks), analysed, sum(not point.is_whole for point in ordered),
        _shares(analysed, {rank: (node,) for rank, node in nodes.items()}),
        tuple(_group_share(group, analysed) for group in sorted(groups)),
    )  # fmt: skip


def _rank(job: str, attempt: int, rank: int, own: Sequence[tuple[Lateness, RankLateness]], among: int) -> RankSkew:
    resolved = [point for point, _ in own if point.is_resolved]
    last = [point for point in resolved if rank in point.last]
    late = sorted(point.after_first_ns for _, point in own)
    share = len(last) / len(resolved) if resolved else None
    chance = _chance(resolved, len(last)) if resolved else None
    half = len(own) // 2
    trend = None
    if half >= 4:
        first, second = ([point.after_first_ns for _, point in part] for part in (own[:half], own[half:]))
        trend = int(median(second) - median(first))
    return RankSkew(
        job=job, attempt=attempt, rank=rank, node=own[-1][1].node, meetings=len(own), resolved=len(resolved),
        last=len(last), share_last=share, chance=chance, median_ns=int(median(late)),
        p99_ns=late[min(len(late) - 1, int(0.99 * len(late)))],
        bound_ns=int(median(point.bound_ns for _, point in own)),
        median_after_median_ns=int(median(point.after_median_ns for _, point in own)),
        behind_ns=int(median(point.behind_ns for point in last)) if last else None,
        behind_bound_ns=int(median(point.bound_ns for point in last)) if last else None,
        caused_gpu_s=sum(point.caused_ns / len(point.last) for point in last) / 1e9,
        waited_gpu_s=sum(late.waited_ns for point, late in own if point.is_resolved and rank not in point.last) / 1e9,
        trend_ns=trend, is_culprit=bool(last) and chance is not None and chance * among <= CHANCE,
    )  # fmt: skip


def _chance(resolved: Sequence[Lateness], last: int) -> float:
    """P-value of being last at `last` of these sync points if all ranks were alike (binomial)."""
    share = sum(len(point.last) / len(point.ranks) for point in resolved) / len(resolved)
    return binomial_tail(len(resolved), last, share)


def binomial_tail(trials: int, least: int, share: float) -> float:
    """Probability of at least `least` successes in `trials`, each with probability `share`."""
    if least <= 0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return 0.0
    logs = (
        lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) + k * log(share) + (trials - k) * log(1.0 - share)
        for k in range(least, trials + 1)
    )
    return min(1.0, sum(exp(log_term) for log_term in logs))


def _shares(analysed: Sequence[Lateness], names: Mapping[int, Sequence[str]]) -> tuple[Share, ...]:
    last: dict[str, int] = defaultdict(int)
    caused: dict[str, float] = defaultdict(float)
    ranks: dict[str, int] = defaultdict(int)
    for own in names.values():
        for name in own:
            ranks[name] += 1
    for point in analysed:
        for name in {name for rank in point.last for name in names.get(rank, ())}:
            last[name] += 1
        for rank in point.last:
            for name in names.get(rank, ()):
                caused[name] += point.caused_ns / len(point.last) / 1e9
    shares = [Share(name, ranks[name], last[name], caused[name]) for name in ranks]
    return tuple(sorted(shares, key=lambda point: (-point.caused_gpu_s, -point.last, point.name)))


def _group_share(group: str, analysed: Sequence[Lateness]) -> Share:
    own = [point for point in analysed if point.sync_point.group == group]
    members = {late.rank for point in own for late in point.ranks}
    return Share(
        group,
        len(members),
        sum(point.is_resolved for point in own),
        sum(point.caused_ns for point in own) / 1e9,
    )
