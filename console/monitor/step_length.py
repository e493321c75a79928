"""How long a step of each job takes: by its watched step, else by its step clock."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Final

from ..analysis.late_rank import StepLength
from ..analysis.stalls import JobKey
from ..core.store import Store
from ..records.kinds import is_gone
from .rank_signs import signs_of

#: Newest steps of a rank that are read at a time.
MOST_STEPS: Final = 64
#: Watched steps from which their median is known.
LEAST_STEPS: Final = 5


def step_length(store: Store, job: JobKey, stepping: int | None) -> StepLength | None:
    """The median of the newest watched steps of a rank, `stepping`; without one by the clock of its job."""
    if stepping is None:
        clock = signs_of(store).clocks.get(job)
        pulse = clock.pulse if clock is not None else None
        return StepLength(pulse.period_s, pulse.curve) if pulse is not None else None
    made = store.steps.newest((*job, stepping), MOST_STEPS)
    seen = made[1] if made is not None else []
    paces = [(new.mono - old.mono) / 1e9 / (new.step - old.step) for new, old in pairwise(seen) if new.step > old.step]
    return StepLength(median(paces)) if len(paces) >= LEAST_STEPS else None


def step_lengths(store: Store) -> Mapping[JobKey, StepLength]:
    """By attempt of a job; without those that show no steps."""
    signs_of(store).clocks.read()  # in a recording, nothing else does
    stepping: dict[JobKey, int | None] = {}
    for now in store.ranks.values():
        rank = now.rank
        if rank.rank is None or is_gone(rank):
            continue
        job = (rank.job, rank.attempt)
        lowest = stepping.setdefault(job, None)
        if now.stat is not None and now.stat.step is not None and (lowest is None or rank.rank < lowest):
            stepping[job] = rank.rank
    lengths = {job: step_length(store, job, rank) for job, rank in stepping.items()}
    return {job: length for job, length in lengths.items() if length is not None}
