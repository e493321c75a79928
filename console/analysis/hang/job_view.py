"""The ranks of a job as a verdict sees them: who waits for others, who does not, and who cannot be seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import Final

from ...records import Rank
from ..jobs import MissingRank
from ..stacks.frame_models import FrameClass
from ..stacks.frames import Reader
from .evidence import Evidence, ProcessKey
from .native_frames import native_classes
from .rank_state import RankState, rank_state_of
from .samples import samples_by_process

#: Classes in which a rank waits for other ranks: it has done its part.
WAITING: Final[frozenset[FrameClass]] = frozenset({"collective", "p2p", "store_wait", "group_setup", "teardown"})
#: What a rank may be in because of others, or because of itself: it is neither blamed nor counted as a witness.
OPAQUE: Final[frozenset[FrameClass]] = frozenset({"device_wait", "unknown"})
#: Classes of a process that the kernel keeps from running, whatever its stack says.
HELD: Final[frozenset[FrameClass]] = frozenset({"stopped", "uninterruptible", "debugger"})


@dataclass(frozen=True)
class JobView:
    """One job. Ranks without a number are counted in no group: nothing can be said of them."""

    evidence: Evidence
    standings: tuple[RankState, ...]  # of live ranks, by number
    workers: Mapping[int, tuple[RankState, ...]]  # processes below a rank

    @cached_property
    def waiting(self) -> tuple[RankState, ...]:
        return tuple(standing for standing in self.standings if standing.cls in WAITING)

    @cached_property
    def behind(self) -> tuple[RankState, ...]:
        """Those that do something else than waiting for others."""
        return tuple(
            standing
            for standing in self.standings
            if standing.cls not in WAITING and standing.cls != "dead" and not self._is_opaque(standing)
        )

    @cached_property
    def opaque(self) -> tuple[RankState, ...]:
        """Those with a stack that does not tell whether they wait for others."""
        return tuple(
            standing for standing in self.standings if standing.trace is not None and self._is_opaque(standing)
        )

    @cached_property
    def unread(self) -> tuple[RankState, ...]:
        """Those that live, and of which nothing is known."""
        return tuple(
            standing
            for standing in self.standings
            if standing.trace is None and standing.cls not in HELD and standing.cls != "dead"
        )

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """Ranks that have ended, by number."""
        exited = {one.rank for one in self.evidence.job.ranks_missing if one.why == "exited"}
        ended = {standing.rank for standing in self.standings if standing.cls == "dead"}
        return tuple(sorted(rank for rank in exited | ended if rank is not None))

    @cached_property
    def not_found(self) -> tuple[MissingRank, ...]:
        return tuple(one for one in self.evidence.job.ranks_missing if one.why == "not_found")

    @cached_property
    def out_of_sight(self) -> tuple[MissingRank, ...]:
        """Ranks that may well live: on a node that is lost or cannot be reached, or behind a permission."""
        return tuple(one for one in self.evidence.job.ranks_missing if one.why not in ("exited", "not_found"))

    @property
    def captured(self) -> tuple[RankState, ...]:
        return tuple(standing for standing in self.standings if standing.looks)

    @property
    def samples(self) -> int:
        return min((one.looks for one in self.captured), default=0)

    @property
    def watched_s(self) -> float:
        """For how long ranks were looked at; one that could be read only now and then does not count for all."""
        return median_low([one.watched_s for one in self.captured]) if self.captured else 0.0

    def of(self, rank: int) -> RankState | None:
        return self._by_rank.get(rank)

    @cached_property
    def _by_rank(self) -> dict[int, RankState]:
        return {standing.rank: standing for standing in reversed(self.standings) if standing.rank is not None}

    def home(self, rank: int) -> str | None:
        """The node of the ranks that were started beside one: launchers give each node a block of numbers."""
        sizes = {one.local_world_size for one in self.evidence.ranks if one.attempt == self.evidence.job.attempt}
        size = sizes.pop() if len(sizes) == 1 else None
        if not size:
            return None
        nodes = {
            standing.node
            for standing in self.standings
            if standing.rank is not None and standing.rank // size == rank // size
        }
        return nodes.pop() if len(nodes) == 1 else None

    def last_record(self, rank: int | None) -> Rank | None:
        """The newest record of a rank that is no more."""
        records = [one for one in self.evidence.ranks if one.rank == rank and one.attempt == self.evidence.job.attempt]
        return max(records, key=lambda record: (record.rx, record.seq), default=None)

    def _is_opaque(self, one: RankState) -> bool:
        if one.trace is None:
            return one.cls == "unknown"
        if one.looks > 2 and one.place_s < one.watched_s / 2:
            return False  # whatever it does, it goes on
        if one.cls == "compute" and one.trace.in_user and not one.native and self._uses_gpu(one):
            return True  # a rank that waits for its GPU may spin: only its native calls tell that from computing
        return one.cls in OPAQUE

    @property
    def uses_gpus(self) -> bool:
        return bool(self._on_gpus)

    @cached_property
    def _on_gpus(self) -> frozenset[ProcessKey]:
        ranks = self.evidence.ranks
        return frozenset((rank.node, rank.pid, rank.start_ticks) for rank in ranks if rank.gpu is not None)

    def _uses_gpu(self, one: RankState) -> bool:
        return one.key in self._on_gpus


def job_view_of(evidence: Evidence) -> JobView:
    """Read the stacks of a job's newest attempt."""
    job = evidence.job
    reader = Reader(evidence.models)
    stacks = [stack for stack in evidence.stacks if (stack.job, stack.attempt) == (job.job, job.attempt)]
    natives = native_classes(stacks, reader)
    live = {
        (row.node, row.pid, row.start_ticks)
        for row in job.rows
        if row.attempt == job.attempt and row.status in ("present", "no_permission")
    }
    standings: list[RankState] = []
    workers: dict[int, list[RankState]] = {}
    for key, looks in samples_by_process(stacks).items():
        made = rank_state_of(key, looks, reader, natives, evidence.still.get(key))
        if made.role == "rank" and key in live and made.rank is not None:
            standings.append(made)
        elif made.role != "rank" and made.rank is not None:
            workers.setdefault(made.rank, []).append(made)
    standings.sort(key=lambda standing: (standing.rank or 0, standing.key))
    return JobView(evidence, tuple(standings), {rank: tuple(found) for rank, found in sorted(workers.items())})
