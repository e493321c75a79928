"""The progress of ranks: what shows without a capture, and the verdict as long as it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ..analysis.hang.diagnosis import Judgement
from ..analysis.live_progress import Signs, live_progress, prevailing
from ..analysis.rank_progress import RankProgress, progress_of
from ..analysis.stalls import JobKey
from ..core.store import ProcessKey, RankNow, Store
from ..core.versioned_table import Table
from ..records.kinds import is_gone
from .hang import evaluation
from .rank_signs import current_place, signs_of

#: ns. A rank that progressed is known to do so for this long after its last sample.
LASTS_NS: Final = 60_000_000_000
#: Seconds after which a watched step that does not change is no sign of progress.
LEAST_S: Final = 30.0
#: ns. Samples of stacks and figures of a rank are taken by different threads of the agent.
SLACK_NS: Final = 2_500_000_000


def progress_in(store: Store) -> Mapping[ProcessKey, RankProgress]:
    """The progress of all live ranks in a store."""
    return prepare_progress(store, evaluation(store).judgements() if len(store.captures) else ())()


def prepare_progress(
    store: Store, judgements: Sequence[Judgement]
) -> Callable[[], Mapping[ProcessKey, RankProgress]]:  # fmt: skip
    """The work that returns the progress of live ranks by process, for any thread; the store is read now.

    `judgements` are those on their jobs.
    """
    verdicts = verdict_progress(store.ranks, judgements)
    if store.history is not None:
        signs_of(store).clocks.read()  # in a recording, nothing else does
    jobs: dict[JobKey, list[Signs]] = {}
    trained: dict[JobKey, bool] = {}
    transfers: dict[JobKey, Mapping[int, bool | None]] = {}
    for key, now in store.ranks.items():
        if not is_gone(now.rank) and now.stat is not None:
            job = (now.rank.job, now.rank.attempt)
            if job not in jobs:
                jobs[job], transfers[job] = [], _transfers(store, job)
            moves = None if now.rank.rank is None else transfers[job].get(now.rank.rank)
            jobs[job].append(_signs(store, key, now, moves, trained))

    def work() -> Mapping[ProcessKey, RankProgress]:
        progress = {**verdicts}
        for ranks in jobs.values():
            for key, live in live_progress(ranks, LEAST_S).items():
                progress[key] = prevailing(verdicts.get(key), live)
        return progress

    return work


def _transfers(store: Store, job: JobKey) -> Mapping[int, bool | None]:
    """Rank → whether its GPU exchanges data with others; empty without GPUs."""
    return signs_of(store).transfers(*job) if len(store.gpu_processes) else {}


def _signs(
    store: Store, key: ProcessKey, now: RankNow, transfers: bool | None, trained: dict[JobKey, bool]
) -> Signs:  # fmt: skip
    rank, stat, place = now.rank, now.stat, current_place(now)
    assert stat is not None
    made = store.steps.newest((rank.job, rank.attempt, rank.rank), 1) if rank.rank is not None else None
    is_own = made is not None and made[0] == (rank.pid, rank.start_ticks) and bool(made[1])
    step_age_s = (stat.mono - made[1][0].mono) / 1e9 if made is not None and is_own else None
    signs = signs_of(store)
    shown = Signs(
        key, stat.t, stat.step, step_age_s, transfers=transfers, collectives=signs.collectives(rank, stat.t),
        pulse=signs.pulse(rank),
    )  # fmt: skip
    if place is None:
        return shown
    facts = replace(signs.facts(key, place), activity=signs.activity(key, now, place, trained))
    return replace(
        shown, place=facts, sampled_s=(stat.t - place.sampled) / 1e9, path_s=(place.sampled - place.path_since) / 1e9,
        samples=place.samples, places=now.places, moved_bytes=0 if now.quiet_since is not None else place.moved_bytes,
    )  # fmt: skip


def verdict_progress(
    ranks: Table[ProcessKey, RankNow], judgements: Sequence[Judgement]
) -> dict[ProcessKey, RankProgress]:
    """The progress by the verdicts on their jobs. Without ranks that have done something since they were sampled."""
    progress = {}
    for judgement in judgements:
        for key, entry in progress_of(judgement).items():
            now = ranks.get(key)
            if now is not None and not is_gone(now.rank) and holds(entry, now):
                progress[key] = entry
    return progress


def holds(entry: RankProgress, now: RankNow) -> bool:
    """Whether a rank has not done anything since that contradicts its progress."""
    if now.stat is None:
        return True
    if entry.state not in ("waiting", "stalled"):
        return now.stat.t - entry.at <= LASTS_NS
    if not entry.slept:
        return True  # it runs, and only its stack tells whether it goes on
    if now.stat.t <= entry.at + SLACK_NS:
        return True
    if now.asleep_since is None:
        return False
    return now.stat.t - (now.stat.mono - now.asleep_since) <= entry.at + SLACK_NS
