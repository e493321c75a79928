"""Consistency checks: collectives that end before all ranks entered (clock error), and desynchronised ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from statistics import median_low
from typing import Final

import msgspec

from ..clock.model import ClusterInstant, CommonClock
from ..collectives.align import Member, ProcessGroup
from ..collectives.operations import BINDING, operation
from .sync_points import Arrival, RankKey, StepProgress, SyncPoint

#: Minimum lag in steps: a rank sets its variable a little before or after the collective of a step.
STEPS_APART: Final = 2
#: Ranks of a group, those that are furthest, with which each of the others is compared.
MOST_FRONTS: Final = 8


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
    readings: int = 1  # readings of the ranks that show it


def desyncs_of_steps(progress: Mapping[RankKey, StepProgress], clock: CommonClock | None = None) -> list[Desync]:
    """Ranks two or more steps behind the median of their job at an earlier instant than their own reading.

    Ranks are read at different instants, so each is compared with where the others had been seen by then. Readings of
    different nodes are compared on the common clock; without it they are not.
    """
    jobs: dict[tuple[str, int], dict[int, StepProgress]] = {}
    for (job, attempt, rank), rank_progress in progress.items():
        jobs.setdefault((job, attempt), {})[rank] = rank_progress
    desynced = []
    for (job, attempt), own in sorted(jobs.items()):
        fronts = {rank: front for rank in own if (front := _front(rank, own, clock)) is not None}
        behind = tuple(sorted(rank for rank, front in fronts.items() if front - own[rank].step >= STEPS_APART))
        if behind and len(behind) < len(own) / 2:
            furthest = max(own[rank].step for rank in behind)
            front = max(fronts[rank] for rank in behind)
            evidence = tuple(f"rank_stat.step rank {rank} {own[rank].step}" for rank in behind[:8])
            readings = 2 if all(own[rank].gained is not None for rank in behind) else 1
            desynced.append(Desync(job, attempt, "step", behind, furthest, front, evidence, readings))
    return desynced


def _front(rank: int, own: Mapping[int, StepProgress], clock: CommonClock | None) -> int | None:
    """The median step of the other ranks at the latest instants before this rank was read; None where unknown."""
    read = own[rank]
    if read.read is None:
        return None
    here = _stamp(clock, read.node, read.read)
    steps = []
    for other, other_progress in own.items():
        if other == rank or other_progress.read is None:
            continue
        is_local = other_progress.node == read.node
        sightings = [(step, mono) for step, _, mono in other_progress.seen]
        sightings.append((other_progress.step, other_progress.read))
        before = [
            step
            for step, mono in sightings
            if (mono <= read.read if is_local else _is_before(_stamp(clock, other_progress.node, mono), here))
        ]
        if before:
            steps.append(max(before))
    return median_low(sorted(steps)) if len(steps) * 2 >= len(own) else None


def _stamp(clock: CommonClock | None, node: str, mono: int) -> ClusterInstant | None:
    return clock.to_cluster(node, mono) if clock is not None else None


def _is_before(first: ClusterInstant | None, second: ClusterInstant | None) -> bool:
    """Whether the first instant is certainly before the second."""
    return first is not None and second is not None and first.ns + first.bound_ns <= second.ns - second.bound_ns


def desyncs(
    job: str, attempt: int, captures: Sequence[Iterable[ProcessGroup]], clock: CommonClock | None = None
) -> list[Desync]:
    """Ranks that, in the newest of these captures, have not entered a collective that others had completed before.

    Only collectives count that no rank can leave before all have entered, and only ranks whose read began after the
    completion, on the common clock: reading all ranks takes up to a second. A late rank is not a desync: it prevents
    the others from completing. `readings` is 2 where an earlier capture shows the completion, too.
    """
    if not captures:
        return []
    earlier = [{(group.witness, group.name): group for group in groups} for groups in captures[:-1]]
    desynced = []
    for group in captures[-1]:
        fronts = [member for member in group.members.values() if member.is_live]
        before = [old for groups in earlier if (old := groups.get((group.witness, group.name))) is not None]
        now_behind = _left_behind(group, fronts, clock)
        behind_before: dict[int, int] = {}
        for old in before:
            behind_before |= _left_behind(group, old.members.values(), clock)
        left_behind = {**now_behind, **behind_before}
        if not left_behind or len(left_behind) * 2 >= len(fronts):
            continue
        behind = [group.members[rank] for rank in sorted(left_behind)]
        evidence = tuple(f"collective.collective_seq_id rank {member.rank} {member.last}" for member in behind[:8])
        desynced.append(
            Desync(
                job, attempt, group.title, tuple(sorted(left_behind)), max(member.last for member in behind),
                max(left_behind.values()), evidence, 2 if left_behind.keys() <= behind_before.keys() else 1,
            )
        )  # fmt: skip
    return desynced


def _left_behind(group: ProcessGroup, fronts: Iterable[Member], clock: CommonClock | None) -> dict[int, int]:
    """Rank → the collective that it had not entered when it was read, although another rank had completed it."""
    passed = [(seq, front) for front in fronts if front.read_at is not None and (seq := _passed(front)) is not None]
    foremost = nlargest(MOST_FRONTS, passed, key=lambda pair: pair[0])
    left_behind: dict[int, int] = {}
    for member in group.members.values():
        for seq, front in foremost:
            if member.is_live and member.last < seq and _is_read_after(member, front, clock):
                left_behind[member.rank] = max(seq, left_behind.get(member.rank, seq))
    return left_behind


def _passed(member: Member) -> int | None:
    """The newest binding collective that a rank has completed; None without one."""
    over = [
        seq
        for seq, entries in member.entered.items()
        if all(entry.retired and operation(entry.profiling_name).kind in BINDING for entry in entries)
    ]
    return max(over, default=None)


def _is_read_after(member: Member, front: Member, clock: CommonClock | None) -> bool:
    """Whether the read of a rank certainly began after that of another one had ended."""
    if member.rank == front.rank or member.read_at is None or front.read_at is None:
        return False
    ended = front.read_at + front.took_ns
    if member.node == front.node:
        return member.read_at >= ended
    if clock is None:
        return False
    return _is_before(
        clock.to_cluster(front.node, ended, "real"), clock.to_cluster(member.node, member.read_at, "real")
    )
