"""Data derived from the store for the screen: jobs and ranks, diagnoses, clocks and lateness.

Each is recomputed when its sources change, at most as often as a reader can follow; large ones in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ..analysis.collectives.communication import Communication
from ..analysis.hang.diagnosis import Judgement
from ..analysis.late_rank import JobWaits
from ..analysis.skew.findings import NO_SKEW, SkewSnapshot
from ..analysis.stacks.fold import GRANULARITIES, PLAIN, THREADS, Fold, Shape, fold
from ..core.derived import Derived, InBackground
from ..core.store import CaptureNow, NodeNow, Store
from ..monitor.hang import evaluation, newest_communication
from ..monitor.progress import prepare_progress
from ..monitor.skew import prepare_skew
from ..monitor.slow_jobs import SlowJobs
from ..monitor.step_length import step_lengths
from ..present.clocks import NO_CLOCKS, ClockSummary, clock_rows
from ..records import Stack
from ..text import format
from .models.job_ranks import JobsSummary, fold_jobs

if TYPE_CHECKING:
    from .snapshot import ScreenSnapshot

T = TypeVar("T")
#: Seconds. Upper bounds on how often each is recomputed; a reader cannot follow more.
JOBS_EVERY_S: Final = 0.5
CLOCKS_EVERY_S: Final = 1.0
SKEW_EVERY_S: Final = 2.0
#: Ranks. Above this number jobs are folded in a thread.
MANY_RANKS: Final = 512
#: After a fold of many ranks, idle time in multiples of its duration: at most a tenth of a core.
PAUSE: Final = 9.0
#: Entries of collectives and steps of ranks above which lateness is computed in a thread, and steps of each rank.
MANY_ARRIVALS, STEPS_OF_RANK = 2_000, 10


class JobFold:
    """The jobs with their ranks, from rank records, node states and the age of the nodes' data."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: Mapping[str, NodeNow] = {}
        self._ages: dict[str, str] = {}  # of nodes without fresh data
        self._states: tuple[str, ...] = ()
        self._diagnoses: tuple[JobDiagnosis, ...] = ()
        self._jobs = Derived(
            store, [store.ranks.changed_since], self._prepare, JobsSummary(), every_s=JOBS_EVERY_S,
            size=lambda: len(store.ranks), thread_above=MANY_RANKS, pause=PAUSE,
        )  # fmt: skip
        self._jobs.invalidate()

    @property
    def value(self) -> JobsSummary:
        """The newest result."""
        return self._jobs.value

    @property
    def is_current(self) -> bool:
        """Whether the value accounts for every record in the store."""
        return self._jobs.is_current

    def refresh(self, frame: ScreenSnapshot, in_background: InBackground) -> None:
        """Recompute where due and where ranks, or the nodes in this frame, changed."""
        self._nodes = frame.nodes
        ages = {node.name: format.age(node.age_ns) for node in frame.fleet.nodes if not node.fresh and node.age_ns}
        states = tuple(node.word for node in frame.fleet.nodes)
        if (ages, states) != (self._ages, self._states) or frame.hang is not self._diagnoses:
            self._ages, self._states, self._diagnoses = ages, states, frame.hang
            self._jobs.invalidate()
        self._jobs.refresh(in_background)

    def _prepare(self) -> Callable[[], JobsSummary]:
        ranks = self._store.ranks
        records = {key: (now.rank, now.stat) for key, now in ranks.items()}
        nodes = [node.state for node in self._nodes.values() if node.state is not None]
        progress = prepare_progress(self._store, [job.judgement for job in self._diagnoses])
        ages, steps = self._ages, step_lengths(self._store)
        return lambda: fold_jobs(records, nodes, ages, progress(), steps)


class ClockSkewFold:
    """The nodes' clocks, and the lateness of ranks on the common clock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._now = 0
        book = store.clocks
        tables = (book.nodes, book.windows, book.sources, book.costs, book.gpus)
        self._clocks = Derived(
            store, [table.changed_since for table in tables], lambda: partial(clock_rows, book, self._now),
            NO_CLOCKS, every_s=CLOCKS_EVERY_S,
        )  # fmt: skip
        self._skew = Derived(
            store, [store.captures.table.changed_since, store.steps.changed_since, self._moved_captures],
            lambda: prepare_skew(store), NO_SKEW, every_s=SKEW_EVERY_S, size=self._size, thread_above=MANY_ARRIVALS,
            pause=PAUSE,
        )  # fmt: skip
        slow_jobs = SlowJobs(store)
        self._waits = Derived[tuple[JobWaits, ...]](
            store, [store.ranks.changed_since], slow_jobs.prepare_waits, (), every_s=SKEW_EVERY_S,
            size=lambda: len(store.ranks), thread_above=MANY_RANKS, pause=PAUSE,
        )  # fmt: skip
        self._merged: tuple[SkewSnapshot, tuple[JobWaits, ...], SkewSnapshot] = (NO_SKEW, (), NO_SKEW)

    @property
    def clocks(self) -> ClockSummary:
        """The newest state of all clocks."""
        return self._clocks.value

    @property
    def skew(self) -> SkewSnapshot:
        """The newest lateness of all ranks, and how much of the time they wait for others."""
        skew, waits = self._skew.value, self._waits.value
        if not waits:
            return skew
        if self._merged[0] is not skew or self._merged[1] is not waits:
            self._merged = (skew, waits, replace(skew, waits=waits))
        return self._merged[2]

    def refresh(self, now: int, in_background: InBackground, *, with_skew: bool) -> None:
        """Recompute what is due at console time `now`, ns; lateness only `with_skew`, it is much work per second."""
        self._now = now
        self._clocks.refresh(in_background)
        if with_skew:
            self._skew.refresh(in_background)
            self._waits.refresh(in_background)

    def is_current(self, *, with_skew: bool) -> bool:
        """Whether the shown values account for every record in the store."""
        return self._clocks.is_current and not self._skew.is_busy and (self._skew.is_current or not with_skew)

    def _moved_captures(self, since: int) -> bool:
        """Whether a clock changed that places captured collectives in time."""
        return len(self._store.captures) > 0 and bool(self._store.clocks.nodes.changed_since(since))

    def _size(self) -> float:
        """Entries of collectives, and steps of ranks."""
        entries = sum(len(capture.collectives) for capture in self._store.captures.values())
        return entries + STEPS_OF_RANK * len(self._store.ranks)


class JobDiagnosis(msgspec.Struct, frozen=True):
    """One job as its captures show it. `fold` and `stacks` are of one capture, `number` of `captures`."""

    judgement: Judgement
    fold: Fold | None  # None where that capture has no stack of the job
    stacks: tuple[Stack, ...]
    number: int
    captures: int
    incomplete: int  # stacks of that capture that did not arrive or were too many
    before: Fold | None  # of the capture before it
    communication: Communication | None  # of the newest capture with records of communication libraries

    @property
    def job(self) -> str:
        """The job, as its ranks name it."""
        return self.judgement.verdict.job


class DiagnosisFold(Derived[tuple[JobDiagnosis, ...]]):
    """The diagnosis of every job. `choose` selects an earlier capture, the `next_` methods another fold of it.

    Not to be refreshed while a capture runs: its records are incomplete.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, [store.captures.table.changed_since], self._prepare, (), thread_above=0)
        self.shape: Shape = PLAIN
        self._data = store
        self._chosen: str | None = None  # id of the chosen capture; None is the newest

    def choose(self, by: int) -> None:
        """Select the capture `by` places before (negative) or after the present one."""
        captures = self._complete_captures()
        if captures:
            last = len(captures) - 1
            number = min(max(self._index(captures) + by, 0), last)
            self._chosen = None if number == last else captures[number].id
            self.invalidate()

    def next_threads(self) -> None:
        """Fold the next of: main threads, those that block them, all."""
        self.shape = replace(self.shape, threads=_next(THREADS, self.shape.threads))
        self.invalidate()

    def next_granularity(self) -> None:
        """Group ranks by the next of: function, line, variables."""
        self.shape = replace(self.shape, granularity=_next(GRANULARITIES, self.shape.granularity))
        self.invalidate()

    def _complete_captures(self) -> list[CaptureNow]:
        """The captures of at least half of the ranks, oldest first: a diagnosis adds captures of single processes."""
        captures = self._data.captures.values()
        most = max((len(capture.ranks) for capture in captures), default=0)
        return [capture for capture in captures if 2 * len(capture.ranks) >= most]

    def _index(self, captures: Sequence[CaptureNow]) -> int:
        ids = [capture.id for capture in captures]
        return ids.index(self._chosen) if self._chosen in ids else len(ids) - 1

    def _prepare(self) -> Callable[[], tuple[JobDiagnosis, ...]]:
        evaluated = evaluation(self._data)
        captures = self._complete_captures()
        index = self._index(captures)
        stacks = tuple(captures[index].stacks) if captures else ()
        earlier = tuple(captures[index - 1].stacks) if index > 0 else ()
        lost = captures[index].lost + captures[index].dropped if captures else 0
        jobs = [evidence.job for evidence in evaluated.evidence]
        communications = [newest_communication(self._data, (job.job, job.attempt)) for job in jobs]
        shown = _ShownCapture(stacks, earlier, self.shape, index + 1, len(captures), lost)
        return lambda: tuple(map(shown.diagnosis, evaluated.judgements(), communications))


class _ShownCapture(msgspec.Struct, frozen=True):
    """The chosen capture, and the one before it."""

    stacks: tuple[Stack, ...]
    earlier: tuple[Stack, ...]
    shape: Shape
    number: int
    captures: int
    lost: int

    def diagnosis(self, judgement: Judgement, communication: Communication | None) -> JobDiagnosis:
        """One job in this capture."""
        evidence = judgement.view.evidence
        job = (evidence.job.job, evidence.job.attempt)
        parts = (self.stacks, self.earlier)
        own, before = (tuple(stack for stack in part if (stack.job, stack.attempt) == job) for part in parts)
        now, then = (fold(part, job, evidence.models, self.shape) if part else None for part in (own, before))
        return JobDiagnosis(judgement, now, own, self.number, self.captures, self.lost, then, communication)


def _next(values: Sequence[T], present: T) -> T:
    return values[(values.index(present) + 1) % len(values)]
