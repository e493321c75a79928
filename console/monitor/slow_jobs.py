"""Detects jobs that are slow while their steps advance: one rank is late, or all steps take longer than they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from math import ceil, log
from typing import Final

import msgspec

from ..analysis.finding import FindingDraft
from ..analysis.hang.job_view import HELD, JobView
from ..analysis.hang.progress import MIN_STRAGGLER_SAMPLES, independent_samples
from ..analysis.hang.rank_state import WAITING, RankState
from ..analysis.hang.wording import place
from ..analysis.late_rank import (
    LEAST_WAITS,
    JobWaits,
    LateRank,
    PlaceSample,
    StepLength,
    late_rank,
    late_text,
    waits_of,
)
from ..analysis.pace import Pace, Slowdown
from ..analysis.stalls import JobKey, Suspicion
from ..core.store import ProcessKey, Store
from ..records import Confidence
from ..records.kinds import is_gone
from ..text.format import seconds, step_time
from .job_clocks import CurveClock, TrafficClock
from .rank_signs import signs_of
from .step_length import MOST_STEPS, step_length

#: Captures of different steps in which all others wait for a rank, until it is named where one step fills a capture: at
#: least the first, and so many that one rank is the last in all of them by chance with the second at most.
LEAST_CAPTURES: Final = 3
CHANCE: Final = 0.005


class _Job(msgspec.Struct):
    """The light samples of the ranks of one job, and the rank of lowest number with a watched step."""

    samples: dict[int, Sequence[PlaceSample]] = {}
    nodes: dict[int, str] = {}
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
        self._signs.clocks.read()
        paces = {}
        for job, entry in sorted(jobs.items()):
            pace = None
            if entry.stepping is not None:
                rank, process = entry.stepping
                pace = paces[job, process] = self._paces.get((job, process)) or Pace()
                self._read(pace, (*job, rank))
            clock = self._signs.clocks.get(job)
            if job not in stalled and newest[job[0]] == job[1]:
                late = late_rank(entry.samples)
                if late is not None:
                    yield _late(job, late, self._step(job, entry))
                    continue
                suspicion = _slower(job, pace.slowdown) if pace is not None else _slower_by_clock(job, clock)
                if suspicion is not None:
                    yield suspicion
        self._paces = paces

    def _jobs(self) -> dict[JobKey, _Job]:
        jobs: dict[JobKey, _Job] = {}
        for key, now in self._store.ranks.items():
            rank = now.rank
            if rank.rank is None or is_gone(rank):
                continue
            entry = jobs.setdefault((rank.job, rank.attempt), _Job({}, {}))
            entry.samples[rank.rank], entry.nodes[rank.rank] = self._signs.samples(key), rank.node
            has_step = now.stat is not None and now.stat.step is not None
            if has_step and (entry.stepping is None or rank.rank < entry.stepping[0]):
                entry.stepping = (rank.rank, key)
        return jobs

    def waits(self) -> tuple[JobWaits, ...]:
        """How much of the time each rank of the newest attempts waits for others, by the light samples."""
        return self.prepare_waits()()

    def prepare_waits(self) -> Callable[[], tuple[JobWaits, ...]]:
        """Copy what `waits` needs; the returned function may run in any thread."""
        jobs = self._jobs()
        copies = [
            (job, {rank: tuple(each) for rank, each in entry.samples.items()}, entry.nodes, self._step(job, entry))
            for job in dict(sorted(jobs)).items()
            for entry in (jobs[job],)
        ]

        def work() -> tuple[JobWaits, ...]:
            waits = [waits_of(*job, samples, nodes, step) for job, samples, nodes, step in copies]
            return tuple(entry for entry in waits if entry.ranks)

        return work

    def _step(self, job: JobKey, entry: _Job) -> StepLength | None:
        return step_length(self._store, job, entry.stepping[0] if entry.stepping is not None else None)

    def _read(self, pace: Pace, rank: tuple[str, int, int]) -> None:
        """Add the steps of a rank since the last reading."""
        made = self._store.steps.newest(rank, MOST_STEPS)
        for seen in reversed(made[1] if made is not None else ()):
            if seen.mono / 1e9 > pace.newest_s:
                pace.add(seen.step, seen.mono / 1e9)


def _late(job: JobKey, late: LateRank, step: StepLength | None) -> Suspicion:
    text = f"the others wait for rank {late.rank} for {seconds(late.since_s)}, while steps advance"
    return Suspicion(
        job, late.since_s, (), text, is_slow=True, late=late.rank, measured=late_text(late, step),
        is_data=late.cls == "dataloader", waits_every_s=late.since_s / LEAST_WAITS,
    )  # fmt: skip


def _slower(job: JobKey, slow: Slowdown | None) -> Suspicion | None:
    if slow is None:
        return None
    was, lasts = step_time(slow.earlier_s), seconds(slow.since_s)
    text = f"each step takes {step_time(slow.step_s)}, for {lasts} now; before it took {was}"
    return Suspicion(job, slow.since_s, (), text, is_slow=True)


def _slower_by_clock(job: JobKey, clock: CurveClock | TrafficClock | None) -> Suspicion | None:
    if clock is None or clock.slowdown is None:
        return None
    slow = clock.slowdown
    text = (
        f"steps take {slow.step_s / slow.earlier_s:.1f} times as long, for {seconds(slow.since_s)} now:"
        f" {clock.curve} repeats every {step_time(slow.step_s)}, before every {step_time(slow.earlier_s)}"
    )
    return Suspicion(job, slow.since_s, (), text, is_slow=True, evidence=clock.evidence)


class LateCaptures(msgspec.Struct):
    """The captures of one job, in different steps, in which all others waited for the same rank.

    The stacks of some seconds show one step of a job whose steps take longer; a straggler only shows over several.
    """

    rank: int | None = None
    count: int = 0
    shows_steps: bool = False  # one of its captures shows several steps by itself
    newest_s: float = 0.0  # when the newest that counts was made, on the clock of the node of that rank
    waits: int = 0  # of each other rank, in all captures

    def add(self, suspicion: Suspicion, view: JobView) -> RankState | None:
        """Count a capture; the state of the late rank once enough of them show it, or None.

        Captures of one wait count once. One in which no rank is alone does not count and contradicts nothing: the
        others may be computing as well.
        """
        working = _waited_for(view)
        if self.rank != suspicion.late or (working is not None and working.rank != suspicion.late):
            self.rank, self.count, self.shows_steps = suspicion.late, 0, False
        others = [state for state in view.states if state.rank != suspicion.late]
        waits = min((len(independent_samples(state)) for state in others), default=0)
        self.shows_steps |= waits - self.waits >= MIN_STRAGGLER_SAMPLES
        self.waits = waits
        if working is not None and working.rank == suspicion.late:
            captured_s = working.last.t / 1e9
            apart_s = captured_s - self.newest_s
            has_woken = max(state.frozen_s for state in others) < apart_s
            if self.count == 0 or (has_woken and suspicion.waits_every_s < apart_s):
                self.count, self.newest_s = self.count + 1, captured_s
        if self.count < captures_needed(len(view.states)):
            return None
        return next((state for state in view.states if state.rank == suspicion.late), None)


def captures_needed(ranks: int) -> int:
    """The captures that name one of so many ranks: ranks whose steps take their time by chance are the last in turn."""
    return max(LEAST_CAPTURES, ceil(log(CHANCE) / -log(max(2, ranks))))


def _waited_for(view: JobView) -> RankState | None:
    """The only rank that does not wait for others, while it works; None without one."""
    working = [state for state in view.states if state.cls not in WAITING]
    is_whole = len(view.states) > 1 and not view.not_found and not view.dead
    if not is_whole or len(working) != 1 or working[0] not in view.behind or working[0].cls in HELD:
        return None
    return working[0]


def _bound_by_data(suspicion: Suspicion, evidence: tuple[str, ...]) -> FindingDraft:
    """The finding of a job whose steps wait for data: without a name, because any rank may be the last for long.

    Data loaders read ahead. A rank that has fallen behind by chance has no batch in store, and the others wait in every
    step, until another one has fallen behind.
    """
    return FindingDraft(
        id="slow", severity="warning", confidence="likely", culprits=(), job=suspicion.job[0],
        text=f"{suspicion.job[0]}: steps wait for data loading, at present that of rank {suspicion.late}. "
        f"{suspicion.measured}.",
        evidence=evidence,
    )  # fmt: skip


def _without_name(suspicion: Suspicion) -> FindingDraft:
    """The finding of a job all of whose steps have become longer."""
    return FindingDraft(
        id="slow", severity="warning", confidence="likely", culprits=(),
        text=f"{suspicion.job[0]}: {suspicion.text}. No rank is consistently late.",
        evidence=suspicion.evidence or ("rank_stat.step",),
        job=suspicion.job[0],
    )  # fmt: skip


def _seen_late(suspicion: Suspicion, state: RankState, captures: int) -> FindingDraft:
    """The finding of a rank for which the others waited in several captures."""
    where = place(state.site)
    text = (
        f"rank {state.rank} is slower than the others: in {captures} captures of different steps, all others "
        f"waited while it worked, at last in {state.cls}{' in ' + where if where else ''}."
    )
    return FindingDraft(
        id="straggler", severity="warning", confidence="likely", culprits=(f"rank {state.rank}",),
        text=f"{suspicion.job[0]}: {text}", evidence=("stack.frames",), job=suspicion.job[0],
    )  # fmt: skip


def slow_findings(
    suspicion: Suspicion, verdict: FindingDraft | None, late: LateCaptures, seen: RankState | None
) -> tuple[FindingDraft, ...] | None:
    """The findings of a slow job in place of that of the verdict on its capture; None: that of the verdict.

    A rank is named only if the verdict on a capture of several steps names it as a straggler, or enough captures show
    that all others wait for it (`seen`), and the samples before name no other one. What these measured is part of the
    finding, which is `likely` at most.
    """
    names = verdict is not None and verdict.id == "straggler"
    if suspicion.late is None:
        return None if names else (_without_name(suspicion),)
    if verdict is None or not names:
        verdict = None if seen is None else _seen_late(suspicion, seen, late.count)
    elif verdict.culprits != (f"rank {suspicion.late}",) or (seen is None and not late.shows_steps):
        verdict = None
    if verdict is None:
        return ()
    evidence = (*verdict.evidence, f"place.frames: {suspicion.measured}")
    if suspicion.is_data:
        return (_bound_by_data(suspicion, evidence),)
    trust: Confidence = "likely" if verdict.confidence == "certain" else verdict.confidence
    text = f"{verdict.text} {suspicion.measured}."
    return (msgspec.structs.replace(verdict, confidence=trust, text=text, evidence=evidence),)
