"""What captures say of every job, folded and judged anew when one has come; in a thread, for there may be thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ...analysis.collectives import Communication
from ...analysis.hang import Judgement
from ...analysis.stacks.fold import GRANULARITIES, PLAIN, THREADS, Fold, Shape, fold
from ...core.store import CaptureNow, Store
from ...monitor.hang import evaluation, newest_communication
from ...records import Stack

T = TypeVar("T")


@dataclass(frozen=True)
class JobDiagnosis:
    """One job as its captures show it. `fold` and `stacks` are of one capture, `number` of `captures`."""

    judged: Judgement
    fold: Fold | None  # None where that capture has nothing of the job
    stacks: tuple[Stack, ...]
    number: int
    captures: int
    incomplete: int  # stacks of that capture that did not arrive or were too many
    before: Fold | None  # of the capture before it
    said: Communication | None  # what communication libraries recorded, in the newest capture that has any of it

    @property
    def job(self) -> str:
        return self.judged.verdict.job


class DiagnosisFold:
    """The newest judgement in `seen`; `choose` looks at an earlier capture, the others fold it in another way."""

    def __init__(self, store: Store) -> None:
        self.seen: tuple[JobDiagnosis, ...] = ()
        self.is_busy = False
        self._store = store
        self._at: str | None = None  # the capture that was chosen; None is the newest
        self.shape: Shape = PLAIN
        self._known = -1  # the store's version up to which captures are judged
        self._stale = False

    def look(self, in_background: Callable[[Coroutine[None, None, None]], object], *, capturing: bool) -> None:
        """Judge where a capture has come; not while one is under way, whose records say nothing yet."""
        if self.is_busy or capturing or not self._is_wanted():
            return
        self._known, self._stale = self._store.version, False
        work = self._prepared()

        async def in_thread() -> None:
            try:
                self.seen = await asyncio.to_thread(work)
            finally:
                self.is_busy = False

        self.is_busy = True
        in_background(in_thread())

    @property
    def is_current(self) -> bool:
        """Whether nothing waits to be judged."""
        return not self.is_busy and not self._is_wanted()

    def choose(self, by: int) -> None:
        """Look at the capture so many before (below 0) or after the one on the screen."""
        whole = self._whole()
        if whole:
            here = next((at for at, one in enumerate(whole) if one.id == self._at), len(whole) - 1)
            there = min(max(here + by, 0), len(whole) - 1)
            self._at = None if there == len(whole) - 1 else whole[there].id
            self._stale = True

    def turn_threads(self) -> None:
        """Fold the next of the main threads, those that block them, and all."""
        self.shape = replace(self.shape, threads=_next(THREADS, self.shape.threads))
        self._stale = True

    def turn_granularity(self) -> None:
        """Tell ranks apart by the next of function, line and variables."""
        self.shape = replace(self.shape, granularity=_next(GRANULARITIES, self.shape.granularity))
        self._stale = True

    def _is_wanted(self) -> bool:
        return self._stale or bool(self._store.captures.table.changed_since(self._known))

    def _whole(self) -> list[CaptureNow]:
        """The captures that looked at everything, oldest first: of those a diagnosis adds, some ask few processes."""
        captures = self._store.captures.values()
        most = max((len(capture.ranks) for capture in captures), default=0)
        return [capture for capture in captures if 2 * len(capture.ranks) >= most]

    def _prepared(self) -> Callable[[], tuple[JobDiagnosis, ...]]:
        """The work, on copies of what the store has."""
        evaluated = evaluation(self._store)
        whole = self._whole()
        number = next((at for at, one in enumerate(whole) if one.id == self._at), len(whole) - 1)
        stacks = tuple(whole[number].stacks) if whole else ()
        earlier = tuple(whole[number - 1].stacks) if number > 0 else ()
        lost = whole[number].lost + whole[number].dropped if whole else 0
        shape = self.shape
        jobs = [evidence.job for evidence in evaluated.evidence]
        communications = [newest_communication(self._store, (job.job, job.attempt)) for job in jobs]

        def work() -> tuple[JobDiagnosis, ...]:
            shown = _Shown(stacks, earlier, shape, number + 1, len(whole), lost)
            pairs = zip(evaluated.judgements(), communications, strict=True)
            return tuple(_seen(judgement, communication, shown) for judgement, communication in pairs)

        return work


@dataclass(frozen=True)
class _Shown:
    """The capture that is looked at, and the one before it."""

    stacks: tuple[Stack, ...]
    earlier: tuple[Stack, ...]
    shape: Shape
    number: int
    captures: int
    lost: int


def _next(every: Sequence[T], present: T) -> T:
    return every[(every.index(present) + 1) % len(every)]


def _seen(judgement: Judgement, communication: Communication | None, shown: _Shown) -> JobDiagnosis:
    evidence = judgement.view.evidence
    job = (evidence.job.job, evidence.job.attempt)
    parts = (shown.stacks, shown.earlier)
    own, before = (tuple(stack for stack in part if (stack.job, stack.attempt) == job) for part in parts)
    now, then = (fold(part, job, evidence.models, shown.shape) if part else None for part in (own, before))
    return JobDiagnosis(judgement, now, own, shown.number, shown.captures, shown.lost, then, communication)
