"""Sync points from a watched step variable, limited by its sample period."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..clock import ClusterInstant, CommonClock
from .culprits import RankKey
from .sync_points import Arrival, SyncPoint


class StepReading(Protocol):
    """First reading of a step by one rank."""

    @property
    def step(self) -> int:
        """Step number."""

    @property
    def before(self) -> int:
        """Previous reading, MONOTONIC_RAW of the node, ns."""

    @property
    def mono(self) -> int:
        """This reading, MONOTONIC_RAW of the node, ns."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Step readings of one rank, its last step, and the steps gained since the previous reading."""

    node: str
    step: int
    seen: Iterable[StepReading] = ()
    gained: int | None = 0


def step_sync_points(progress: Mapping[RankKey, StepProgress], clock: CommonClock) -> list[SyncPoint]:
    """Steps reached by at least two ranks; an arrival is the middle between two readings, ± half their distance.

    A rank that passed several steps between two readings arrives at the newest of them only.
    """
    arrivals: dict[tuple[str, int, int], list[Arrival]] = defaultdict(list)
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    for (job, attempt, rank), rank_progress in progress.items():
        sizes[job, attempt] += 1
        for seen in rank_progress.seen:
            instant = _between(clock, rank_progress.node, seen)
            if instant is not None:
                arrivals[job, attempt, seen.step].append(Arrival(rank, rank_progress.node, instant))
    return [
        SyncPoint(
            "step", job, attempt, "", "step", step, tuple(sorted(reached, key=lambda arrival: arrival.instant.ns)),
            len(reached) == sizes[job, attempt],
        )
        for (job, attempt, step), reached in sorted(arrivals.items())
        if len(reached) > 1
    ]  # fmt: skip


def _between(clock: CommonClock, node: str, seen: StepReading) -> ClusterInstant | None:
    instant = clock.to_cluster(node, (seen.before + seen.mono) // 2)
    return None if instant is None else ClusterInstant(instant.ns, instant.bound_ns + (seen.mono - seen.before) // 2)
