"""Lateness at one sync point, and aggregated: consistent stragglers, their cost and significance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from .per_step import (
    Delay,
    StepLateness,
    chance_of,
    excess,
    median_error,
    much_later,
    placed_lateness,
    step_lateness,
    step_size,
)
from .sync_points import Arrival, RankKey, SyncPoint
from .together import cause_within, late_together

#: Maximum difference of two reads of one node's clock at the same instant, ns.
SAME_NODE_NS = 1_000
#: Significance level of a culprit, over all ranks together (Bonferroni).
CHANCE: Final = 0.001
#: A rank that is late once in a part is later there, by this factor, than if it were late at each collective of it.
FEW: Final = 2
#: Bins of the histogram of lateness, ns: upper ends.
BINS_NS: Final = tuple(int(scale * step) for scale in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9) for step in (1, 2, 5))


class RankLateness(msgspec.Struct, frozen=True):
    """One rank at one sync point: ns after the first and after the median arrival, ± `bound_ns`."""

    rank: int
    node: str
    after_first_ns: int
    after_median_ns: int
    bound_ns: int
    waited_ns: int  # until the last arrival


class Lateness(msgspec.Struct, frozen=True):
    """The last ranks at one sync point and the wait time they caused.

    `last`: ranks that arrived after all others by more than the clock error, several if these are indistinguishable
    (such as all ranks of a late node). Empty: unresolved.
    """

    sync_point: SyncPoint
    ranks: tuple[RankLateness, ...]  # by arrival
    last: tuple[int, ...]
    behind_ns: int  # gap before the first of `last`; unresolved: spread of all arrivals
    bound_ns: int  # error of `behind_ns`

    @property
    def is_resolved(self) -> bool:
        """Whether there is a last rank."""
        return bool(self.last)

    @property
    def caused_ns(self) -> int:
        """Total wait time of the other ranks, rank-nanoseconds; 0 if unresolved."""
        return sum(rank.waited_ns for rank in self.ranks if rank.rank not in self.last) if self.last else 0


def lateness(sync_point: SyncPoint) -> Lateness:
    """Lateness of all ranks at one sync point.

    Arrivals closer than their error bounds are not ordered, so that noise names no culprit. The last ranks are those
    after the widest resolved gap, if they are fewer than half.
    """
    arrivals = sorted(sync_point.arrivals, key=lambda arrival: arrival.instant.ns)
    first, newest = arrivals[0], arrivals[-1]
    middle = int(median(arrival.instant.ns for arrival in arrivals))
    ranks = tuple(
        RankLateness(
            arrival.rank, arrival.node, arrival.instant.ns - first.instant.ns, arrival.instant.ns - middle,
            apart_bound(first, arrival), newest.instant.ns - arrival.instant.ns,
        )
        for arrival in arrivals
    )  # fmt: skip
    cut = _cut(arrivals)
    if cut is None:
        return Lateness(sync_point, ranks, (), newest.instant.ns - first.instant.ns, apart_bound(first, newest))
    before, after = arrivals[cut - 1], arrivals[cut]
    last = tuple(sorted(arrival.rank for arrival in arrivals[cut:]))
    return Lateness(sync_point, ranks, last, after.instant.ns - before.instant.ns, apart_bound(before, after))


def apart_bound(arrival: Arrival, other: Arrival) -> int:
    """Error bound of the difference of two arrivals, ns; on one node only the read error."""
    if arrival is other:
        return 0
    return SAME_NODE_NS if arrival.node == other.node else arrival.instant.bound_ns + other.instant.bound_ns


def _cut(arrivals: list[Arrival]) -> int | None:
    """Index after the widest resolved gap: all arrivals before it precede all after it."""
    best, widest = None, 0
    for index in range((len(arrivals) + 1) // 2, len(arrivals)):
        if index == 0:
            continue
        gap = arrivals[index].instant.ns - arrivals[index - 1].instant.ns
        if gap > widest and _is_gap(arrivals[:index], arrivals[index:]):
            best, widest = index, gap
    return best


def _is_gap(before: list[Arrival], after: list[Arrival]) -> bool:
    """Whether each of `after` arrived later than each of `before`, beyond the error of every such pair."""
    latest: dict[str, Arrival] = {}
    reach = max(arrival.instant.ns + arrival.instant.bound_ns for arrival in before)
    begin = min(arrival.instant.ns - arrival.instant.bound_ns for arrival in after)
    if begin > reach:
        return True
    for arrival in before:
        if arrival.node not in latest or arrival.instant.ns > latest[arrival.node].instant.ns:
            latest[arrival.node] = arrival
    return all(
        other.instant.ns - arrival.instant.ns > apart_bound(arrival, other)
        for arrival in latest.values()
        for other in after
    )


class RankSkew(msgspec.Struct, frozen=True):
    """Lateness of one rank over all complete sync points, ns after the first arrival.

    `share_last`: share of resolved sync points; `chance`: p-value of being last this often.
    """

    job: str
    attempt: int
    rank: int
    node: str
    sync_points: int
    resolved: int  # of those, with a last rank
    last: int  # of those, where this rank was (among) the last
    share_last: float | None
    chance: float | None
    median_ns: int
    p99_ns: int
    bound_ns: int
    median_after_median_ns: int
    behind_ns: int | None  # median lag when it was last; with `per_step`: per step
    behind_bound_ns: int | None  # clock error, and the interval of 95 % of the median
    caused_gpu_s: float  # wait time it caused, GPU-seconds with one GPU per rank
    waited_gpu_s: float  # its own wait time at resolved sync points
    trend_ns: int | None  # median lateness of the second half of the sync points less that of the first
    is_culprit: bool  # significantly and consistently last, or the cause of most of a step's waiting
    excess: float  # how consistently, beyond chance: 0 to 1
    per_step: StepLateness | None = None  # where it is a culprit by whole steps, and later in them than at one of them

    @property
    def beyond_chance_ns(self) -> float:
        """Its lateness, less so much of it as any rank would have by chance."""
        return (self.behind_ns or 0) * self.excess

    @property
    def key(self) -> RankKey:
        """(job, attempt, rank)"""
        return self.job, self.attempt, self.rank

    @property
    def is_resolved(self) -> bool:
        """Whether its lateness exceeds the clock error."""
        return self.median_ns > self.bound_ns


class Share(msgspec.Struct, frozen=True):
    """Aggregate over the ranks of one node or process group."""

    name: str
    ranks: int
    last: int  # resolved sync points where one of them was last
    caused_gpu_s: float


class JobSkew(msgspec.Struct, frozen=True):
    """All sync points of one job attempt."""

    job: str
    attempt: int
    ranks: tuple[RankSkew, ...]  # culprits by cost, then the rest by lateness
    analysed: tuple[Lateness, ...]  # oldest first
    incomplete: int  # sync points with missing ranks, not analysed
    by_node: tuple[Share, ...]
    by_group: tuple[Share, ...]
    #: Ranks that are late at the same time, in sets, where the record does not show which of them is the cause.
    together: tuple[tuple[int, ...], ...] = ()

    @property
    def resolved(self) -> int:
        """Sync points with a last rank."""
        return sum(point.is_resolved for point in self.analysed)

    @property
    def unresolved(self) -> int:
        """Sync points within the clock error."""
        return len(self.analysed) - self.resolved

    @property
    def culprits(self) -> tuple[RankSkew, ...]:
        """Consistent stragglers."""
        return tuple(rank for rank in self.ranks if rank.is_culprit)

    @property
    def histogram(self) -> tuple[tuple[int, int, int], ...]:
        """Histogram of the last rank's lateness: (upper end in ns, resolved, unresolved), without empty ends."""
        counts = [[0, 0] for _ in BINS_NS]
        for point in self.analysed:
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
    by_step = _lateness_by_step(analysed, len(by_rank)) if _is_of_collectives(analysed) else {}
    ranks = [_by_step(_rank(job, attempt, rank, own, len(by_rank)), by_step.get(rank)) for rank, own in by_rank.items()]
    often_last = [rank.rank for rank in ranks if rank.is_culprit]
    together = late_together(analysed, often_last) if _is_of_collectives(analysed) else []
    behind = {rank.rank: rank.behind_ns or 0 for rank in ranks}
    causes = {cause_within(analysed, members, behind) for members in together}
    unknown = {rank for members in together for rank in members} - causes
    ranks = [msgspec.structs.replace(rank, is_culprit=rank.is_culprit and rank.rank not in unknown) for rank in ranks]
    ranks.sort(key=lambda point: (not point.is_culprit, -point.caused_gpu_s, -point.median_ns, point.rank))
    groups = {point.sync_point.group for point in analysed}
    return JobSkew(
        job, attempt, tuple(ranks), analysed, sum(not point.is_whole for point in ordered),
        _node_shares(analysed, {rank: own[-1][1].node for rank, own in by_rank.items()}),
        tuple(_group_share(group, analysed) for group in sorted(groups)),
        tuple(members for members in together if not causes.intersection(members)),
    )  # fmt: skip


def _rank(job: str, attempt: int, rank: int, own: Sequence[tuple[Lateness, RankLateness]], among: int) -> RankSkew:
    resolved = [point for point, _ in own if point.is_resolved]
    last = [point for point in resolved if rank in point.last]
    late = sorted(point.after_first_ns for _, point in own)
    share = len(last) / len(resolved) if resolved else None
    behind = [point.behind_ns for point in last]
    much = much_later(behind, [point.behind_ns for point in resolved if rank not in point.last])
    times = [rank in point.last for point in resolved]
    chance = chance_of(times, _by_chance(resolved)) if resolved else None
    consistent = excess(times, _by_chance(resolved), much) if resolved else 0.0
    half = len(own) // 2
    trend = None
    if half >= 4:
        first, second = ([point.after_first_ns for _, point in part] for part in (own[:half], own[half:]))
        trend = int(median(second) - median(first))
    return RankSkew(
        job=job, attempt=attempt, rank=rank, node=own[-1][1].node, sync_points=len(own), resolved=len(resolved),
        last=len(last), share_last=share, chance=chance, median_ns=int(median(late)),
        p99_ns=late[min(len(late) - 1, int(0.99 * len(late)))],
        bound_ns=int(median(point.bound_ns for _, point in own)),
        median_after_median_ns=int(median(point.after_median_ns for _, point in own)),
        behind_ns=int(median(behind)) if last else None,
        behind_bound_ns=int(median(point.bound_ns for point in last)) + median_error(behind) if last else None,
        caused_gpu_s=sum(point.caused_ns / len(point.last) for point in last) / 1e9,
        waited_gpu_s=sum(late.waited_ns for point, late in own if point.is_resolved and rank not in point.last) / 1e9,
        trend_ns=trend, excess=consistent,
        is_culprit=chance is not None and chance * among <= CHANCE and consistent > 0.0,
    )  # fmt: skip


def _lateness_by_step(analysed: Sequence[Lateness], ranks: int) -> dict[int, StepLateness]:
    """By rank, its significant lateness per step: at one place of the steps of a group, else over whole steps."""
    delays = [
        Delay(
            point.last, len(point.ranks), point.behind_ns, point.bound_ns, point.caused_ns, point.sync_point.group_key,
            point.sync_point.number, _arrived(point),
        )
        for point in analysed
    ]  # fmt: skip
    points = [point.sync_point for point in analysed]
    whole = step_lateness(delays, step_size(points), ranks)
    late = {
        rank: step
        for rank, step in whole.items()
        if step.chance * ranks <= CHANCE and step.excess > 0.0 and step.is_resolved
    }
    by_group: dict[str, list[SyncPoint]] = defaultdict(list)
    for point in points:
        by_group[point.group_key].append(point)
    sizes: Counter[int] = Counter()
    for group, own in by_group.items():
        size = step_size(own, [size for size, _ in sizes.most_common(4)])
        if size is None:
            continue
        sizes[size] += 1
        own_delays = [delay for delay in delays if delay.group == group]
        placed = placed_lateness(own_delays, own, size, CHANCE / ranks)
        for rank, step in placed.items():
            if not step.is_resolved:
                continue
            if rank not in late or not late[rank].is_placed or step.chance < late[rank].chance:
                late[rank] = step
    return late


def _arrived(point: Lateness) -> int:
    """When the first of the last ranks arrived."""
    return min((each.instant.ns for each in point.sync_point.arrivals if each.rank in point.last), default=0)


def _by_step(rank: RankSkew, per_step: StepLateness | None) -> RankSkew:
    """The rank with its lateness per step, if that is larger than at a single collective."""
    if per_step is None:
        return rank
    # at every collective of a part: then the sum over a part of unknown meaning is no better figure
    alike = (1 if per_step.is_step else FEW * per_step.size) * (rank.behind_ns or 0)
    if rank.is_culprit and alike >= per_step.behind_ns:
        return rank
    return msgspec.structs.replace(
        rank, is_culprit=True, per_step=per_step, behind_ns=per_step.behind_ns, behind_bound_ns=per_step.bound_ns,
        excess=per_step.excess,
    )  # fmt: skip


def _is_of_collectives(analysed: Sequence[Lateness]) -> bool:
    """Whether the record is of collectives, several of which may be one step."""
    return bool(analysed) and analysed[0].sync_point.kind == "collective"


def _by_chance(resolved: Sequence[Lateness]) -> float:
    """The share of these sync points at which a rank is last if all are alike."""
    return sum(len(point.last) / len(point.ranks) for point in resolved) / len(resolved)


def _node_shares(analysed: Sequence[Lateness], node_of: Mapping[int, str]) -> tuple[Share, ...]:
    last: dict[str, int] = defaultdict(int)
    caused: dict[str, float] = defaultdict(float)
    for point in analysed:
        for node in {node_of[rank] for rank in point.last}:
            last[node] += 1
        for rank in point.last:
            caused[node_of[rank]] += point.caused_ns / len(point.last) / 1e9
    ranks = Counter(node_of.values())
    shares = [Share(node, count, last[node], caused[node]) for node, count in ranks.items()]
    return tuple(sorted(shares, key=lambda share: (-share.caused_gpu_s, -share.last, share.name)))


def _group_share(group: str, analysed: Sequence[Lateness]) -> Share:
    own = [point for point in analysed if point.sync_point.group == group]
    members = {late.rank for point in own for late in point.ranks}
    resolved, caused_ns = sum(point.is_resolved for point in own), sum(point.caused_ns for point in own)
    return Share(group, len(members), resolved, caused_ns / 1e9)
