"""Which step each rank is at, and since when: of a variable that is watched, as often as it is read."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...records import RankStat
from ..clock import At, CommonClock
from .meetings import Arrival, Meeting

#: So many steps of a rank are kept.
KEPT: Final = 256

#: (job, attempt, rank)
RankKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A rank was first seen at a step at `mono`, and was seen before it at `before`: it came in between."""

    step: int
    before: int  # MONOTONIC_RAW of the node, ns
    mono: int


@dataclass(slots=True)
class _RankSteps:
    node: str
    pid: tuple[int, int]
    seen: deque[StepSeen]
    step: int | None = None  # at the last reading
    read: int = 0  # MONOTONIC_RAW of that


class Steps:
    """The fold of `rank_stat` records with a step."""

    def __init__(self) -> None:
        self._ranks: dict[RankKey, _RankSteps] = {}

    def add(self, record: RankStat) -> None:
        """Remember when a rank reached a step; a record without one says nothing."""
        if record.step is None or record.rank is None:
            return
        key = (record.job, record.attempt, record.rank)
        known = self._ranks.get(key)
        if known is None or known.pid != (record.pid, record.start_ticks) or record.mono < known.read:
            known = _RankSteps(record.node, (record.pid, record.start_ticks), deque(maxlen=KEPT))
            self._ranks[key] = known
        elif known.step is not None and record.step > known.step:
            known.seen.append(StepSeen(record.step, known.read, record.mono))
        known.step, known.read = record.step, record.mono

    def now(self) -> dict[RankKey, tuple[str, int, int]]:
        """Of each rank its node, its step at the last reading, and when that was (MONOTONIC_RAW)."""
        return {key: (one.node, one.step, one.read) for key, one in self._ranks.items() if one.step is not None}

    def meetings(self, clock: CommonClock) -> list[Meeting]:
        """The steps that at least two ranks were seen to reach; each arrival is in the middle between two readings.

        A rank that passed several steps between two readings arrives at the newest of them only.
        """
        arrivals: dict[tuple[str, int, int], list[Arrival]] = defaultdict(list)
        for (job, attempt, rank), one in self._ranks.items():
            for seen in one.seen:
                at = _between(clock, one.node, seen)
                if at is not None:
                    arrivals[job, attempt, seen.step].append(Arrival(rank, one.node, at))
        sizes = self._sizes(self._ranks)
        return [
            Meeting(
                "step", job, attempt, "", "step", step, tuple(sorted(found, key=lambda one: one.at.ns)),
                len(found) == sizes[job, attempt],
            )
            for (job, attempt, step), found in sorted(arrivals.items())
            if len(found) > 1
        ]  # fmt: skip

    @staticmethod
    def _sizes(keys: Iterable[RankKey]) -> dict[tuple[str, int], int]:
        sizes: dict[tuple[str, int], int] = defaultdict(int)
        for job, attempt, _ in keys:
            sizes[job, attempt] += 1
        return sizes


def _between(clock: CommonClock, node: str, seen: StepSeen) -> At | None:
    at = clock.to_cluster(node, (seen.before + seen.mono) // 2)
    return None if at is None else At(at.ns, at.bound_ns + (seen.mono - seen.before) // 2)
