"""One sync point: the last ranks within the clock error, and the wait time of the others."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from .sync_points import Arrival, SyncPoint


@dataclass(frozen=True, slots=True)
class RankLateness:
    """One rank at one sync point: ns after the first and after the median arrival, ± `bound_ns`."""

    rank: int
    node: str
    after_first_ns: int
    after_median_ns: int
    bound_ns: int
    waited_ns: int  # until the last arrival


@dataclass(frozen=True, slots=True)
class Lateness:
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
            arrival.rank,
            arrival.node,
            arrival.instant.ns - first.instant.ns,
            arrival.instant.ns - middle,
            apart_bound(first, arrival),
            newest.instant.ns - arrival.instant.ns,
        )
        for arrival in arrivals
    )
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


#: Maximum difference of two reads of one node's clock at the same instant, ns.
SAME_NODE_NS = 1_000


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
