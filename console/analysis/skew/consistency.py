"""Consistency checks: collectives that end before all ranks entered (clock error), and desynchronised ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import Final

import msgspec

from ..clock.model import ClusterInstant
from ..collectives.align import ProcessGroup
from .sync_points import Arrival, RankKey, StepProgress, SyncPoint

#: Minimum lag in steps: ranks are read one after the other, so smaller differences are normal.
STEPS_APART: Final = 2


class Violation(msgspec.Struct, frozen=True):
    """A rank left a collective before another entered it, beyond both error bounds: a clock is wrong."""

    sync_point: SyncPoint
    left: Arrival
    entered: Arrival
    early_ns: int  # by how much, beyond the bounds


def violations(sync_points: Iterable[SyncPoint]) -> list[Violation]:
    """The worst violation of each sync point."""
    violations_found = []
    for sync_point in sync_points:
        over = [(arrival, arrival.left) for arrival in sync_point.arrivals if arrival.left is not None]
        if not sync_point.is_binding or not over:
            continue
        pairs = [
            (other.instant.ns - left.ns - _bound(leaver, left, other), leaver, other)
            for leaver, left in over
            for other in _latest(sync_point, leaver)
        ]
        early, leaver, other = max(pairs, key=lambda pair: pair[0], default=(0, None, None))
        if early > 0 and leaver is not None and other is not None:
            violations_found.append(Violation(sync_point, leaver, other, early))
    return violations_found


def _latest(sync_point: SyncPoint, leaver: Arrival) -> list[Arrival]:
    """The other arrival with the latest lower bound, which need not have the latest stamp."""
    others = [other for other in sync_point.arrivals if other.rank != leaver.rank]
    return [max(others, key=lambda other: other.instant.ns - other.instant.bound_ns)] if others else []


def _bound(leaver: Arrival, left: ClusterInstant, other: Arrival) -> int:
    return 0 if leaver.node == other.node else left.bound_ns + other.instant.bound_ns


class Desync(msgspec.Struct, frozen=True):
    """Ranks that lag behind the others by steps, or by collectives of a group."""

    job: str
    attempt: int
    what: str  # "step", or the process group
    behind: tuple[int, ...]
    furthest: int  # position of the foremost of them
    others: int  # median of all
    evidence: tuple[str, ...]


def desyncs_of_steps(progress: Mapping[RankKey, StepProgress]) -> list[Desync]:
    """Ranks two or more steps behind the median of their job, at their last readings.

    Ranks are read at different instants, so the steps gained between two readings are added to the threshold, and a
    rank that was read only once is skipped.
    """
    jobs: dict[tuple[str, int], dict[int, StepProgress]] = {}
    for (job, attempt, rank), rank_progress in progress.items():
        if rank_progress.gained is not None:
            jobs.setdefault((job, attempt), {})[rank] = rank_progress
    desynced = []
    for (job, attempt), own in sorted(jobs.items()):
        steps = {rank: rank_progress.step for rank, rank_progress in own.items()}
        middle = median_low(sorted(steps.values()))
        apart = STEPS_APART + max(rank_progress.gained or 0 for rank_progress in own.values())
        behind = tuple(sorted(rank for rank, step in steps.items() if middle - step >= apart))
        if behind and len(behind) < len(steps) / 2:
            furthest = max(steps[rank] for rank in behind)
            evidence = tuple(f"rank_stat.step rank {rank} {steps[rank]}" for rank in behind[:8])
            desynced.append(Desync(job, attempt, "step", behind, furthest, middle, evidence))
    return desynced


def desyncs(job: str, attempt: int, groups: Iterable[ProcessGroup]) -> list[Desync]:
    """Ranks that have not entered a collective that others, read no later, have completed.

    A late rank is not a desync: it prevents the others from completing.
    """
    desynced = []
    for group in groups:
        readable = [member for member in group.members.values() if member.read_at is not None]
        if len(readable) < 2:
            continue
        front = max(readable, key=lambda member: member.completed)
        behind = [
            member
            for member in readable
            if member.last < front.completed - 1 and (member.read_at or 0) >= (front.read_at or 0)
        ]
        if behind and len(behind) < len(readable):
            evidence = tuple(f"collective.collective_seq_id rank {member.rank} {member.last}" for member in behind[:8])
            ranks = tuple(sorted(member.rank for member in behind))
            furthest = max(member.last for member in behind)
            desynced.append(Desync(job, attempt, group.title, ranks, furthest, front.completed, evidence))
    return desynced
