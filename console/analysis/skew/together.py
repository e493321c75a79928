"""Ranks that are late together: which of them is the cause, as far as the record of collectives shows it.

A rank is late at a collective because it is slow, or because it waited for a slow rank somewhere else: in a collective
of another group, or for a message between the stages of a pipeline, which the record may lack. Ranks that are late at
the same time are one event. Of these, one is named only if all others waited for it in recorded collectives, or if it
is far later than they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .lateness import Lateness

#: Share of the late arrivals of a rank that coincide with those of another, from which they are late together.
COINCIDING: Final = 0.5
#: A rank that others waited for waited for them this many times less; one that is far later is so by this factor.
_LESS: Final = 4
#: Late ranks that are compared with each other; of more no single one is named.
MOST_COMPARED: Final = 64


def late_together(analysed: Sequence[Lateness], culprits: Sequence[int]) -> list[tuple[int, ...]]:
    """The culprits in sets that are late at the same time; sets of one are not listed."""
    if len(culprits) < 2:
        return []
    if len(culprits) > MOST_COMPARED:
        return [tuple(sorted(culprits))]
    late = {rank: _intervals(analysed, rank) for rank in culprits}
    sets = {rank: {rank} for rank in culprits}
    for rank, other in permutations(culprits, 2):
        if sets[rank] is not sets[other] and _coincide(late[rank], late[other]):
            merged = sets[rank] | sets[other]
            for member in merged:
                sets[member] = merged
    distinct = {tuple(sorted(members)) for members in sets.values() if len(members) > 1}
    return sorted(distinct)


def cause_within(analysed: Sequence[Lateness], members: Sequence[int], behind_ns: Mapping[int, int]) -> int | None:
    """The rank of a set that all others of it waited for in recorded collectives, or that is far later than they are.

    A rank is not much later than the one that it waits for. None if there is no such rank.
    """
    latest = max(members, key=lambda rank: behind_ns[rank])
    if all(behind_ns[latest] >= _LESS * behind_ns[rank] for rank in members if rank != latest):
        return latest
    waited: dict[tuple[int, int], int] = defaultdict(int)  # (who, for whom): ns
    wanted = set(members)
    for point in analysed:
        for late in point.ranks:
            if late.rank in wanted and late.rank not in point.last:
                for last in wanted.intersection(point.last):
                    waited[late.rank, last] += late.waited_ns
    causes = [
        rank
        for rank in members
        if all(waited[other, rank] > _LESS * waited[rank, other] for other in members if other != rank)
    ]
    return causes[0] if len(causes) == 1 else None


def _intervals(analysed: Sequence[Lateness], rank: int) -> list[tuple[int, int]]:
    """When others waited for a rank: from the arrival of the others to its own, by their ends."""
    intervals = []
    for point in analysed:
        if rank in point.last:
            own = next(arrival.instant.ns for arrival in point.sync_point.arrivals if arrival.rank == rank)
            intervals.append((min(own, _before(point)), own))
    return sorted(intervals, key=lambda interval: interval[1])


def _before(point: Lateness) -> int:
    """When the newest of the ranks that are not last arrived."""
    return max(arrival.instant.ns for arrival in point.sync_point.arrivals if arrival.rank not in point.last)


def _coincide(intervals: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    """Whether most of these intervals overlap one of the others."""
    ends = [end for _, end in others]
    overlapping = 0
    for begin, end in intervals:
        index = bisect_left(ends, begin)
        overlapping += index < len(others) and others[index][0] <= end
    return bool(intervals) and overlapping >= COINCIDING * len(intervals)
