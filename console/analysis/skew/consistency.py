"""What cannot be: a collective that ends before all have begun it, which counts against the clock; and ranks that are
not where the others are, which counts against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from ..clock import ClusterTime
from ..collectives.align import ProcessGroup
from .culprits import RankKey
from .steps import StepProgress
from .sync_points import Arrival, SyncPoint

#: Steps are read one after the other: so many may lie between two ranks that go at the same pace.
STEPS_APART: Final = 2


@dataclass(frozen=True, slots=True)
class Violation:
    """A rank that knew a collective was over before another had entered it, beyond both bounds: the clock is wrong."""

    sync_point: SyncPoint
    left: Arrival
    entered: Arrival
    early_ns: int  # by how much, beyond the bounds


def violations(meetings: Iterable[SyncPoint]) -> list[Violation]:
    """At most one of each meeting, the worst: shown against the clock, never hidden."""
    found = []
    for sync_point in meetings:
        over = [(arrival, arrival.left) for arrival in sync_point.arrivals if arrival.left is not None]
        if not sync_point.is_binding or not over:
            continue
        pairs = [
            (other.at.ns - left.ns - _bound(one, left, other), one, other)
            for one, left in over
            for other in _latest(sync_point, one)
        ]
        early, one, other = max(pairs, key=lambda pair: pair[0], default=(0, None, None))
        if early > 0 and one is not None and other is not None:
            found.append(Violation(sync_point, one, other, early))
    return found


def _latest(sync_point: SyncPoint, one: Arrival) -> list[Arrival]:
    """The other that surely came last; with unequal bounds that need not be the last by its stamp."""
    others = [other for other in sync_point.arrivals if other.rank != one.rank]
    return [max(others, key=lambda other: other.at.ns - other.at.bound_ns)] if others else []


def _bound(one: Arrival, left: ClusterTime, other: Arrival) -> int:
    return 0 if one.node == other.node else left.bound_ns + other.at.bound_ns


@dataclass(frozen=True, slots=True)
class Desync:
    """Ranks that are behind the others, by steps or by collectives of a group."""

    job: str
    attempt: int
    what: str  # "step", or the process group
    behind: tuple[int, ...]
    at: int  # the furthest that any of them is
    others: int  # the median of all
    evidence: tuple[str, ...]


def desyncs_of_steps(walks: Mapping[RankKey, StepProgress]) -> list[Desync]:
    """Ranks that are two steps or more behind the median of their job, at their last readings.

    Ranks are not read at the same instant: what any of them gains between two readings is no lag, either. One that was
    read only once may have been read long before the others, so nothing is said of it.
    """
    jobs: dict[tuple[str, int], dict[int, StepProgress]] = {}
    for (job, attempt, rank), walk in walks.items():
        if walk.gained is not None:
            jobs.setdefault((job, attempt), {})[rank] = walk
    found = []
    for (job, attempt), own in sorted(jobs.items()):
        steps = {rank: walk.step for rank, walk in own.items()}
        middle = median_low(sorted(steps.values()))
        apart = STEPS_APART + max(walk.gained or 0 for walk in own.values())
        behind = tuple(sorted(rank for rank, step in steps.items() if middle - step >= apart))
        if behind and len(behind) < len(steps) / 2:
            at = max(steps[rank] for rank in behind)
            evidence = tuple(f"rank_stat.step rank {rank} {steps[rank]}" for rank in behind[:8])
            found.append(Desync(job, attempt, "step", behind, at, middle, evidence))
    return found


def desyncs(job: str, attempt: int, groups: Iterable[ProcessGroup]) -> list[Desync]:
    """Ranks that have not entered a collective which others, read no later, have completed: they do something else.

    A rank that is merely late keeps the others from completing, and is no desync.
    """
    found = []
    for group in groups:
        known = [member for member in group.members.values() if member.read_at is not None]
        if len(known) < 2:
            continue
        front = max(known, key=lambda member: member.completed)
        behind = [one for one in known if one.last < front.completed - 1 and (one.read_at or 0) >= (front.read_at or 0)]
        if behind and len(behind) < len(known):
            evidence = tuple(f"collective.collective_seq_id rank {one.rank} {one.last}" for one in behind[:8])
            ranks = tuple(sorted(one.rank for one in behind))
            at = max(one.last for one in behind)
            found.append(Desync(job, attempt, group.title, ranks, at, front.completed, evidence))
    return found
