"""One meeting: who came last, as far as the clocks can tell, and what the others waited."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from .sync_points import Arrival, SyncPoint


@dataclass(frozen=True, slots=True)
class RankLateness:
    """One rank at one meeting: how long after the first and after the median arrival, ns, give or take `bound_ns`."""

    rank: int
    node: str
    after_first_ns: int
    after_median_ns: int
    bound_ns: int
    waited_ns: int  # until the last came


@dataclass(frozen=True, slots=True)
class Lateness:
    """Who arrived last at one meeting, and what it cost the others.

    `last` are the ranks that came after all others by more than the clocks' bound, several where these cannot be told
    apart from each other (a late node brings all of its ranks late). Empty: unresolved.
    """

    sync_point: SyncPoint
    ranks: tuple[RankLateness, ...]  # by arrival
    last: tuple[int, ...]
    behind_ns: int  # how long after the others the first of `last` came; of everybody: how far apart they came
    bound_ns: int  # of that

    @property
    def is_resolved(self) -> bool:
        return bool(self.last)

    @property
    def caused_ns(self) -> int:
        """What the others waited for the last, all together: rank-nanoseconds. 0 where it is unresolved."""
        return sum(rank.waited_ns for rank in self.ranks if rank.rank not in self.last) if self.last else 0


def lateness(sync_point: SyncPoint) -> Lateness:
    """The order of arrivals at one meeting, as far as there is one.

    Two arrivals closer than the sum of their bounds are not ordered, on one node closer than what reading its clocks is
    worth: a ranking of noise would blame somebody by chance. The last are those behind the widest gap that is resolved,
    if they are fewer than half.
    """
    arrivals = sorted(sync_point.arrivals, key=lambda arrival: arrival.at.ns)
    first, newest = arrivals[0], arrivals[-1]
    middle = int(median(arrival.at.ns for arrival in arrivals))
    ranks = tuple(
        RankLateness(
            arrival.rank,
            arrival.node,
            arrival.at.ns - first.at.ns,
            arrival.at.ns - middle,
            apart_bound(first, arrival),
            newest.at.ns - arrival.at.ns,
        )
        for arrival in arrivals
    )
    cut = _cut(arrivals)
    if cut is None:
        return Lateness(sync_point, ranks, (), newest.at.ns - first.at.ns, apart_bound(first, newest))
    before, after = arrivals[cut - 1], arrivals[cut]
    last = tuple(sorted(arrival.rank for arrival in arrivals[cut:]))
    return Lateness(sync_point, ranks, last, after.at.ns - before.at.ns, apart_bound(before, after))


def apart_bound(one: Arrival, other: Arrival) -> int:
    """How far off the difference of two arrivals can be, ns.

    On one node both were read from the same clock: what is known of that clock's own relation to others is no error.
    """
    return 0 if one is other else SAME_NODE_NS if one.node == other.node else one.at.bound_ns + other.at.bound_ns


#: Two processes of one node that read its clock at the same instant read figures this close, ns.
SAME_NODE_NS = 1_000


def _cut(arrivals: list[Arrival]) -> int | None:
    """The place of the widest gap that is surely one: everybody before it came before everybody after it."""
    best, widest = None, 0
    for at in range((len(arrivals) + 1) // 2, len(arrivals)):
        if at == 0:
            continue
        gap = arrivals[at].at.ns - arrivals[at - 1].at.ns
        if gap > widest and _is_gap(arrivals[:at], arrivals[at:]):
            best, widest = at, gap
    return best


def _is_gap(before: list[Arrival], after: list[Arrival]) -> bool:
    """Whether each of `after` came later than each of `before`, beyond the bounds of every such pair."""
    latest: dict[str, Arrival] = {}
    reach = max(one.at.ns + one.at.bound_ns for one in before)
    begin = min(one.at.ns - one.at.bound_ns for one in after)
    if begin > reach:
        return True
    for one in before:
        if one.node not in latest or one.at.ns > latest[one.node].at.ns:
            latest[one.node] = one
    return all(other.at.ns - one.at.ns > apart_bound(one, other) for one in latest.values() for other in after)
