"""Skew of the jobs in a store on the common clock: lateness, violations, desyncs; live and in replay alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..analysis.clock.model import ClusterInstant as ClusterInstant
from ..analysis.clock.model import CommonClock
from ..analysis.clock.model import NodeClock as NodeClock
from ..analysis.collectives.align import groups_of
from ..analysis.collectives.communication import jobs_in
from ..analysis.finding import FindingDraft
from ..analysis.skew.consistency import Desync, desyncs, desyncs_of_steps, violations
from ..analysis.skew.findings import NO_SKEW, RankGpu, SkewSnapshot, skew_findings
from ..analysis.skew.lateness import skew_by_job
from ..analysis.skew.sync_points import (
    RankKey,
    StepProgress,
    SyncPoint,
    capture_sync_points,
    first_of_periods,
    step_sync_points,
    sync_points,
)
from ..config.sections import SkewConfig
from ..core.derived import Derived
from ..core.store import Store
from ..records import Collective, PgStatus
from .rank_gpus import rank_gpus

#: Newest captures in which ranks that lag behind are sought.
DESYNC_CAPTURES: Final = 4
#: Collective entries and ranks from which on skew is computed in a thread.
MANY: Final = 2_000


def clock_of(store: Store) -> CommonClock:
    """The conversion from node time to cluster time, from the store's clock lines and snapshots."""
    book = store.clocks
    return CommonClock(
        {node: tuple(book.nodes[node]) for node in book.nodes},
        {node: tuple(book.snapshots[node]) for node in book.snapshots},
    )


def skew_of(store: Store) -> SkewSnapshot:
    """Skew of the store's current records."""
    return prepare_skew(store)()


def prepare_skew(store: Store, *, steps: bool = True) -> Callable[[], SkewSnapshot]:
    """Copy what the computation needs; the returned function may run in any thread. Without `steps`, no step skew."""
    clock = clock_of(store)
    captures = store.captures.values()
    entries = [entry for capture in captures for entry in (*capture.earlier, *capture.collectives)]
    statuses = [status for capture in store.captures.values() for status in capture.groups]
    read_captures = [(capture.collectives, capture.groups) for capture in store.captures.values()[-DESYNC_CAPTURES:]]
    stacks = [stack for capture in store.captures.values() for stack in capture.stacks]
    walks = {
        key: StepProgress(rank.node, rank.step, rank.seen, rank.gained, rank.read)
        for key, rank in store.steps.ranks().items()
    }
    gpus, world_sizes = gpus_of(store), _world_sizes(store)

    def work() -> SkewSnapshot:
        met = sync_points(entries, clock, statuses, world_sizes)
        stepped, steps_by = _steps(step_sync_points(walks, clock), met) if steps else ([], None)
        behind = [*desyncs_of_steps(walks, clock), *_desyncs(read_captures, clock)]
        read = capture_sync_points(stacks, clock)
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


def _desyncs(captures: Sequence[tuple[Sequence[Collective], Sequence[PgStatus]]], clock: CommonClock) -> list[Desync]:
    """Desyncs of the jobs in the newest capture; earlier ones show what others had completed by then."""
    desynced = []
    for job in jobs_in(captures[-1][0], ()) if captures else ():
        groups = [
            groups_of(
                [entry for entry in entries if (entry.job, entry.attempt) == job],
                [status for status in statuses if (status.job, status.attempt) == job],
                None,
            )
            for entries, statuses in captures
        ]
        desynced += desyncs(*job, groups, clock)
    return desynced


def _steps(watched: list[SyncPoint], met: list[SyncPoint]) -> tuple[list[SyncPoint], str | None]:
    if watched:
        return watched, "a watched variable"
    periods = first_of_periods(met)
    return periods, "the pattern of collectives" if periods else None


def _world_sizes(store: Store) -> dict[tuple[str, int], int]:
    """World size of each (job, attempt), as its ranks report it."""
    sizes: dict[tuple[str, int], int] = {}
    for now in store.ranks.values():
        key = (now.rank.job, now.rank.attempt)
        sizes[key] = max(sizes.get(key, 0), now.rank.world_size or 0)
    return {key: size for key, size in sizes.items() if size}


def gpus_of(store: Store) -> dict[RankKey, RankGpu]:
    """Newest figures of each rank's GPU, for ranks that use exactly one."""
    return {
        key: RankGpu(name, now.gpu.sm_clock_mhz, now.gpu.power_w)
        for key, name, now in rank_gpus(store)
        if now.gpu is not None
    }


class SkewFindings:
    """Findings about late ranks, recomputed when a capture, a step or a clock window arrives.

    Steps of jobs without recorded collectives are analysed only at the last evaluation: for thousands of ranks that is
    too much work for every second.
    """

    name = "skew"

    def __init__(self, store: Store, config: SkewConfig) -> None:
        self._store, self._config = store, config
        self._with_steps = False
        sources = (store.captures.table.changed_since, store.clocks.nodes.changed_since, store.steps.changed_since)
        self._skew = Derived(
            store, sources, lambda: prepare_skew(store, steps=self._with_steps), NO_SKEW, size=self._size,
            thread_above=MANY,
        )  # fmt: skip

    def follow(self, config: SkewConfig) -> None:
        """Apply a changed configuration."""
        self._config = config

    async def evaluate(self, *, is_last: bool) -> list[FindingDraft]:
        """Findings about late ranks now."""
        if not len(self._store.captures) and not self._store.steps.changed_since(-1):
            return []
        if is_last:
            self._with_steps = True
            self._skew.invalidate()
        skew = await self._skew.update()
        return list(skew_findings(skew.primary, skew.violations, skew.desyncs, self._config.max_ms, skew.gpus))

    def _size(self) -> float:
        entries = sum(len(capture.collectives) + len(capture.earlier) for capture in self._store.captures.values())
        return MANY if self._with_steps else entries + len(self._store.ranks)
