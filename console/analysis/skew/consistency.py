"""Consistency checks: collectives that end before all ranks entered (clock error), and desynchronised ranks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
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
        fronts = _fronts(own, clock)
        behind = tuple(sorted(rank for rank, front in fronts.items() if front - own[rank].step >= STEPS_APART))
        if behind and len(behind) < len(own) / 2:
            furthest = max(own[rank].step for rank in behind)
            front = max(fronts[rank] for rank in behind)
            evidence = tuple(f"rank_stat.step rank {rank} {own[rank].step}" for rank in behind[:8])
            readings = 2 if all(own[rank].gained is not None for rank in behind) else 1
            desynced.append(Desync(job, attempt, "step", behind, furthest, front, evidence, readings))
    return desynced


def _fronts(own: Mapping[int, StepProgress], clock: CommonClock | None) -> dict[int, int]:
    """By rank, the median step of the others at the latest instants before it was read, where that is known.

    Only of ranks that some rank is `STEPS_APART` ahead of. One pass over all readings in the order of time: to compare
    each of thousands of ranks with each other one would take minutes.
    """
    read = {rank: progress.read for rank, progress in own.items() if progress.read is not None}
    sightings = {
        rank: [*((step, mono) for step, _, mono in own[rank].seen), (own[rank].step, last)]
        for rank, last in read.items()
    }
    furthest = max((step for each in sightings.values() for step, _ in each), default=0)
    wanted = [rank for rank in read if own[rank].step <= furthest - STEPS_APART]
    if not wanted:
        return {}
    by_node: dict[str, list[int]] = defaultdict(list)
    for rank in read:
        by_node[own[rank].node].append(rank)
    passed = [
        (stamp.ns + stamp.bound_ns, rank, step)
        for rank, each in sightings.items()
        for step, mono in each
        if (stamp := _stamp(clock, own[rank].node, mono)) is not None
    ]
    passed.sort(reverse=True)
    reached = _ReachedSteps()
    fronts = {}
    for begin_ns, rank in sorted((_begin_ns(own[rank].node, read[rank], clock), rank) for rank in wanted):
        while passed and passed[-1][0] <= begin_ns:
            _, other, step = passed.pop()
            reached.note(other, step)
        near = by_node[own[rank].node]  # readings of one node are on one clock
        before = ([step for step, mono in sightings[other] if mono <= read[rank]] for other in near if other != rank)
        front = reached.median_with([max(steps) for steps in before if steps], near, least=len(own) / 2)
        if front is not None:
            fronts[rank] = front
    return fronts


def _begin_ns(node: str, mono: int, clock: CommonClock | None) -> float:
    """The earliest instant of a reading on the common clock, ns; before all others where that is not known."""
    stamp = _stamp(clock, node, mono)
    return float("-inf") if stamp is None else stamp.ns - stamp.bound_ns


class _ReachedSteps:
    """The steps that ranks have reached up to an instant, and their median."""

    def __init__(self) -> None:
        self._by_rank: dict[int, int] = {}
        self._ordered: list[int] = []  # its values

    def note(self, rank: int, step: int) -> None:
        """A rank has reached a step."""
        before = self._by_rank.get(rank)
        if before is not None:
            if step <= before:
                return
            del self._ordered[bisect_left(self._ordered, before)]
        insort(self._ordered, step)
        self._by_rank[rank] = step

    def median_with(self, others: Sequence[int], without: Iterable[int], least: float) -> int | None:
        """The lower median, with the steps `others` in place of those of the ranks `without`.

        None if they are fewer than `least`.
        """
        removed = [self._by_rank[rank] for rank in without if rank in self._by_rank]
        count = len(self._ordered) - len(removed) + len(others)
        if count < least:
            return None
        place = (count - 1) // 2
        # what is removed or added moves the median by as many places at most
        near = self._ordered[max(0, place - len(others)) : place + len(removed) + 1]

        def is_reached(step: int) -> bool:
            up_to = bisect_right(self._ordered, step) + sum(other <= step for other in others)
            return up_to - sum(other <= step for other in removed) > place

        candidates = sorted({*near, *others})
        return candidates[bisect_left(candidates, True, key=is_reached)]


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
