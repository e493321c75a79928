"""Detects jobs that are slow while their steps advance: one rank is late, or all steps take longer than they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from ..analysis.finding import FindingDraft
from ..analysis.late_rank import PlaceSample, late_rank
from ..analysis.pace import Pace
from ..analysis.stalls import JobKey, Suspicion
from ..core.store import ProcessKey, Store
from ..records.kinds import is_gone
from ..text.format import seconds
from .rank_signs import signs_of

#: Newest steps of a rank that are read at a time.
MOST_STEPS: Final = 64


class _Job(msgspec.Struct):
    """The light samples of the ranks of one job, and the rank of lowest number with a watched step."""

    samples: dict[int, Sequence[PlaceSample]] = {}
    stepping: tuple[int, ProcessKey] | None = None


class SlowJobs:
    """The slow jobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store, self._signs = store, signs_of(store)
        self._paces: dict[tuple[JobKey, ProcessKey], Pace] = {}

    def suspicions(self, stalled: AbstractSet[JobKey]) -> Iterator[Suspicion]:
        """The newest attempts of jobs that are slow, by name, but those in `stalled`."""
        jobs = self._jobs()
        newest = dict(sorted(jobs))  # by name
        paces = {}
        for job, entry in sorted(jobs.items()):
            pace = None
            if entry.stepping is not None:
                rank, process = entry.stepping
                pace = paces[job, process] = self._paces.get((job, process)) or Pace()
                self._read(pace, (*job, rank))
            if job not in stalled and newest[job[0]] == job[1]:
                suspicion = _late(job, entry.samples) or (_slower(job, pace) if pace is not None else None)
                if suspicion is not None:
                    yield suspicion
        self._paces = paces

    def _jobs(self) -> dict[JobKey, _Job]:
        jobs: dict[JobKey, _Job] = {}
        for key, now in self._store.ranks.items():
            rank = now.rank
            if rank.rank is None or is_gone(rank):
                continue
            entry = jobs.setdefault((rank.job, rank.attempt), _Job({}))
            entry.samples[rank.rank] = self._signs.samples(key)
            has_step = now.stat is not None and now.stat.step is not None
            if has_step and (entry.stepping is None or rank.rank < entry.stepping[0]):
                entry.stepping = (rank.rank, key)
        return jobs

    def _read(self, pace: Pace, rank: tuple[str, int, int]) -> None:
        """Add the steps of a rank since the last reading."""
        made = self._store.steps.newest(rank, MOST_STEPS)
        for seen in reversed(made[1] if made is not None else ()):
            if seen.mono / 1e9 > pace.newest_s:
                pace.add(seen.step, seen.mono / 1e9)


def _late(job: JobKey, samples: dict[int, Sequence[PlaceSample]]) -> Suspicion | None:
    late = late_rank(samples)
    if late is None:
        return None
    text = f"the others wait for rank {late.rank} for {seconds(late.since_s)}, while steps advance"
    return Suspicion(job, late.since_s, (), text, is_slow=True, late=late.rank)


def _slower(job: JobKey, pace: Pace) -> Suspicion | None:
    slow = pace.slowdown
    if slow is None:
        return None
    was, lasts = seconds(slow.earlier_s), seconds(slow.since_s)
    text = f"each step takes {seconds(slow.step_s)}, for {lasts} now; before it took {was}"
    return Suspicion(job, slow.since_s, (), text, is_slow=True)


def slow_findings(suspicion: Suspicion, verdict: FindingDraft | None) -> tuple[FindingDraft, ...] | None:
    """The findings of a slow job in place of that of the verdict on its capture; None: that of the verdict.

    A rank is named only if the verdict names it as a straggler, and the samples before name no other one.
    """
    if verdict is not None and verdict.id == "straggler":
        return None if suspicion.late is None or verdict.culprits == (f"rank {suspicion.late}",) else ()
    if suspicion.late is not None:
        return ()
    return (
        FindingDraft(
            id="slow", severity="warning", confidence="likely", culprits=(),
            text=f"{suspicion.job[0]}: {suspicion.text}. No rank is consistently late.", evidence=("rank_stat.step",),
            job=suspicion.job[0],
        ),
    )  # fmt: skip
