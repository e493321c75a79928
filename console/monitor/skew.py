"""Skew of what a store knows: the common clock, who is late on it, what speaks against it; live and in replay alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..analysis.clock import CommonClock
from ..analysis.collectives.align import groups_of
from ..analysis.collectives.communication import jobs_in
from ..analysis.skew import (
    Desync,
    JobSkew,
    StepProgress,
    SyncPoint,
    Violation,
    desyncs,
    desyncs_of_steps,
    skew_by_job,
    step_sync_points,
    sync_points,
    violations,
)
from ..analysis.skew.culprits import RankKey
from ..analysis.skew.findings import RankGpu
from ..analysis.skew.sync_points import capture_sync_points as capture_meetings
from ..analysis.skew.sync_points import first_of_periods
from ..core.store import Store
from ..records import GpuInfo


def clock_of(store: Store) -> CommonClock:
    """The conversion of node time to common time, of all windows and snapshots that the store has."""
    book = store.clocks
    return CommonClock(
        {node: tuple(book.nodes[node]) for node in book.nodes},
        {node: tuple(book.snapshots[node]) for node in book.snapshots},
    )


@dataclass(frozen=True)
class SkewSnapshot:
    """Everything about lateness that a store knows. `steps_by` says where steps come from; None: there are none."""

    collectives: tuple[JobSkew, ...]
    steps: tuple[JobSkew, ...]
    steps_by: str | None
    captures: tuple[JobSkew, ...]
    violations: tuple[Violation, ...]
    desyncs: tuple[Desync, ...]
    gpus: dict[RankKey, RankGpu]

    @property
    def primary(self) -> tuple[JobSkew, ...]:
        """Each job by its collectives, or by its steps where no collective could be judged."""
        told = {(collective.job, collective.attempt) for collective in self.collectives if collective.judged}
        return (*self.collectives, *(step for step in self.steps if (step.job, step.attempt) not in told))


NO_SKEW: Final = SkewSnapshot((), (), None, (), (), (), {})


def skew_of(store: Store) -> SkewSnapshot:
    """Skew, of what the store knows now."""
    return prepare_skew(store)()


def prepare_skew(store: Store, *, steps: bool = True) -> Callable[[], SkewSnapshot]:
    """The work, on copies of what the store has: any thread may do it. Without `steps` no lateness at steps is told."""
    clock = clock_of(store)
    entries = [entry for capture in store.captures.values() for entry in capture.collectives]
    statuses = [status for capture in store.captures.values() for status in capture.groups]
    newest = {capture.id for capture in store.captures.values()[-1:]}
    stacks = [stack for capture in store.captures.values() for stack in capture.stacks]
    walks = {key: StepProgress(one.node, one.step, one.seen, one.gained) for key, one in store.steps.ranks().items()}
    gpus, world_sizes = gpus_of(store), _world_sizes(store)

    def work() -> SkewSnapshot:
        met = sync_points(entries, clock, statuses, world_sizes)
        stepped, steps_by = _steps(step_sync_points(walks, clock), met) if steps else ([], None)
        behind = list(desyncs_of_steps(walks))
        last = [entry for entry in entries if entry.capture in newest]
        for job, attempt in jobs_in(last, ()):
            own = [one for one in last if (one.job, one.attempt) == (job, attempt)]
            said = [one for one in statuses if one.capture in newest and (one.job, one.attempt) == (job, attempt)]
            behind += desyncs(job, attempt, groups_of(own, said, None))
        read = capture_meetings(stacks, clock)
        return SkewSnapshot(
            tuple(skew_by_job(met)),
            tuple(skew_by_job(stepped)),
            steps_by,
            tuple(skew_by_job(read)),
            tuple(violations(met)),
            tuple(behind),
            gpus,
        )

    return work


def _steps(watched: list[SyncPoint], met: list[SyncPoint]) -> tuple[list[SyncPoint], str | None]:
    if watched:
        return watched, "a watched variable"
    periods = first_of_periods(met)
    return periods, "the pattern of collectives" if periods else None


def _world_sizes(store: Store) -> dict[tuple[str, int], int]:
    """How many ranks each attempt of a job has, as they say themselves."""
    found: dict[tuple[str, int], int] = {}
    for now in store.ranks.values():
        key = (now.rank.job, now.rank.attempt)
        found[key] = max(found.get(key, 0), now.rank.world_size or 0)
    return {key: size for key, size in found.items() if size}


def gpus_of(store: Store) -> dict[RankKey, RankGpu]:
    """What the GPU of each rank did last, of ranks that use exactly one."""
    found: dict[RankKey, list[tuple[str, str]]] = {}
    for process in store.gpu_processes.values():
        if process.job is not None and process.rank is not None:
            key = (process.job, process.attempt or 0, process.rank)
            found.setdefault(key, []).append((process.node, process.uuid))
    gpus = {}
    for key, uses in found.items():
        now = store.gpus.get(uses[0]) if len(set(uses)) == 1 else None
        if now is not None and now.gpu is not None:
            info: GpuInfo | None = now.info
            index = info.index if info else now.gpu.index
            gpus[key] = RankGpu(f"{uses[0][0]}:gpu{index}", now.gpu.sm_clock_mhz, now.gpu.power_w)
    return gpus
