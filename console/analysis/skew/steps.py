"""Steps as meetings: of a variable that is watched, as exactly as it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..clock import ClusterTime, CommonClock
from .culprits import RankKey
from .sync_points import Arrival, SyncPoint


class StepReading(Protocol):
    """A rank was first seen at a step at `mono`, and was seen before it at `before` (MONOTONIC_RAW of its node, ns)."""

    @property
    def step(self) -> int: ...
    @property
    def before(self) -> int: ...
    @property
    def mono(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One rank's steps, its step at the last reading, and by how much that was more than at the one before, if any."""

    node: str
    step: int
    seen: Iterable[StepReading] = ()
    gained: int | None = 0


def step_sync_points(walks: Mapping[RankKey, StepProgress], clock: CommonClock) -> list[SyncPoint]:
    """The steps that at least two ranks were seen to reach; each arrival is in the middle between two readings.

    Half the time between the readings is part of its bound: steps are told apart only where ranks differ by more than
    a sample period. A rank that passed several steps between two readings arrives at the newest of them only.
    """
    arrivals: dict[tuple[str, int, int], list[Arrival]] = defaultdict(list)
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    for (job, attempt, rank), walk in walks.items():
        sizes[job, attempt] += 1
        for seen in walk.seen:
            at = _between(clock, walk.node, seen)
            if at is not None:
                arrivals[job, attempt, seen.step].append(Arrival(rank, walk.node, at))
    return [
        SyncPoint(
            "step", job, attempt, "", "step", step, tuple(sorted(found, key=lambda one: one.at.ns)),
            len(found) == sizes[job, attempt],
        )
        for (job, attempt, step), found in sorted(arrivals.items())
        if len(found) > 1
    ]  # fmt: skip


def _between(clock: CommonClock, node: str, seen: StepReading) -> ClusterTime | None:
    at = clock.to_cluster(node, (seen.before + seen.mono) // 2)
    return None if at is None else ClusterTime(at.ns, at.bound_ns + (seen.mono - seen.before) // 2)
