"""Detects jobs that stand still or are slow: when to diagnose them automatically, and what to report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

import msgspec

from ..analysis.finding import FindingDraft
from ..analysis.hang.diagnosis import Judgement
from ..analysis.hang.progress import works
from ..analysis.places import PATIENT, own_call
from ..analysis.stalls import LEAST_STEPS, LONG_ACTIVITY, JobKey, RankActivity, Suspicion, suspicions
from ..config.sections import WatchConfig
from ..core.derived import Throttle
from ..core.store import ProcessKey, RankNow, Store
from ..records import Rank
from ..records.kinds import is_gone
from ..text.nodeset_fold import fold_numbers
from .coverage import is_settled
from .hang import evaluation, verdict_finding
from .job_clocks import JobClocks
from .rank_signs import current_place, quiet_s, signs_of
from .slow_jobs import LateCaptures, SlowJobs, slow_findings

#: Seconds between two evaluations, and the pause after one in multiples of its CPU time: 2 % of a core, or more where
#: the longest pause, in seconds, is shorter, as after the one that loads numpy: a stall is noticed that much later.
EVERY_S, PAUSE, LONGEST_PAUSE_S = 1.0, 50.0, 5.0
#: Seconds until a job that is not hung is diagnosed again, if it still appears to stand still; doubles each time.
#: A hung job is diagnosed again after the longest.
AGAIN_S, LONGEST_S = 30.0, 600.0
#: Diagnoses of a job with a late rank after which the pauses between them become longer.
MOST_LATE_CAPTURES: Final = 20
#: Seconds for which a job that was slow must not appear so until it is diagnosed again.
RELEASE_S: Final = 120.0
#: Nanoseconds after the start for which a diagnosis waits for nodes that have not reported yet.
STARTS_NS: Final = 20_000_000_000
#: Nanoseconds for which stacks that no diagnosis of this watch requested are evidence of the present.
RECENT_NS: Final = 120_000_000_000
#: Newest steps of a rank from which the duration of a step is taken.
MOST_STEPS: Final = 9

#: Classes of ranks whose job starts.
SETS_UP: Final = ("group_setup", "import")
#: Places that a finding names.
MOST_PLACES: Final = 4


class _Diagnosed(msgspec.Struct):
    """A suspected job whose diagnosis has begun."""

    due_s: float  # monotonic; next diagnosis, also where this one fails
    pause_s: float = AGAIN_S / 2  # until then
    is_reported: bool = False  # its verdict is a finding
    timed_out: int = 0  # consecutive diagnoses in which no stack was read in time
    failed: int = 0  # consecutive diagnoses that brought no stack, after earlier ones that did
    is_unread: bool = False  # no stack of its ranks could be read
    slow_s: float | None = None  # monotonic; when it last appeared to be slow, not to stand still
    instead: tuple[FindingDraft, ...] | None = None  # findings in place of that of its verdict; None: that one
    late: LateCaptures = msgspec.field(default_factory=LateCaptures)
    late_captures: int = 0  # diagnoses because of a late rank


class _Judged(msgspec.Struct):
    """The verdict on a job by its newest stack, which later changes of the job's ranks do not alter."""

    rx: int  # of that stack, console time, ns
    draft: FindingDraft | None


class StallWatch:
    """Jobs of one store. `clock` is monotonic, in seconds."""

    def __init__(self, store: Store, config: WatchConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._config, self._clock = store, config, clock
        self._throttle = Throttle(EVERY_S, PAUSE, clock, longest_pause_s=LONGEST_PAUSE_S)
        self._signs = signs_of(store)
        self._slow = SlowJobs(store)
        self._diagnosed: dict[JobKey, _Diagnosed] = {}
        self._judged: dict[JobKey, _Judged] = {}

    @property
    def step_clocks(self) -> JobClocks:
        """The step clocks of the jobs of its store."""
        return self._signs.clocks

    def follow(self, config: WatchConfig) -> None:
        """Use a configuration that was saved meanwhile."""
        self._config = config

    def due(self, *, at_once: bool = False) -> tuple[Suspicion, ...]:
        """The jobs to diagnose now: those that appear to stand still or slow, and reported ones that do so no longer.

        Evaluates once a second, and with `at_once` in any case.
        """
        if self._config.stall_s <= 0 or not (self._throttle.is_due or at_once) or self._is_starting():
            return ()
        with self._throttle.running():
            activities = list(self._activities())
            suspected = suspicions(activities, self._config.stall_s)
            suspected += self._slow.suspicions({each.job for each in suspected})
        now_s = self._clock()
        wanted = [each for each in suspected if self._begins(each, now_s)]
        alive = {(rank.job, rank.attempt) for rank in activities}
        for job in sorted(self._diagnosed.keys() - {each.job for each in suspected}):
            entry = self._diagnosed[job]
            is_recent = entry.slow_s is not None and now_s - entry.slow_s < RELEASE_S
            if job in alive and (is_recent or entry.instead == ()):
                continue
            del self._diagnosed[job]
            if entry.is_reported and job in alive:  # a hung job that was killed stays reported
                wanted.append(Suspicion(job, 0.0, (), "it makes progress again"))
        return tuple(wanted)

    def diagnosed(self, jobs: Sequence[Suspicion]) -> list[FindingDraft]:
        """The findings after a diagnosis of these jobs: of all jobs that do not move."""
        judgements = {(each.verdict.job, each.view.evidence.job.attempt): each for each in self._judgements()}
        now_s = self._clock()
        captured = self._judge(judgements)
        drafts = {job: kept.draft for job, kept in self._judged.items() if kept.draft is not None}
        for suspicion in jobs:
            if suspicion.since_s:
                judgement, draft = judgements.get(suspicion.job), drafts.get(suspicion.job)
                entry = self._diagnosed.setdefault(suspicion.job, _Diagnosed(now_s))
                entry.failed = 0 if suspicion.job in captured or judgement is None else entry.failed + 1
                if entry.failed > 1:  # once, its node may have been lost meanwhile, or busy
                    judgement = None
                entry.instead = self._instead(suspicion, judgement, draft, entry)
                reported = (draft,) if entry.instead is None and draft is not None else entry.instead or ()
                is_known = any(_is_error(each) or suspicion.is_slow for each in reported)
                if is_known:
                    entry.pause_s = LONGEST_S
                elif suspicion.is_slow and 0 < entry.late_captures < MOST_LATE_CAPTURES:
                    entry.pause_s = AGAIN_S
                else:
                    entry.pause_s = min(LONGEST_S, 2 * entry.pause_s)
                entry.due_s, entry.is_reported = now_s + entry.pause_s, bool(reported)
        findings: list[FindingDraft] = []
        for job in sorted(drafts.keys() | self._diagnosed.keys()):
            current, of_verdict = self._diagnosed.get(job), (drafts[job],) if job in drafts else ()
            if job in drafts and drafts[job].id == "straggler" and (current is None or current.slow_s is None):
                of_verdict = ()  # a capture of some seconds does not show that a rank is lastingly late
            instead = current.instead if current is not None else None
            is_unread = current is not None and current.is_unread
            if instead and is_unread and job in captured and judgements[job].view.captured:
                instead = None  # it was read since
            findings += of_verdict if instead is None or any(map(_is_error, of_verdict)) else instead
        return findings

    def _judge(self, judgements: Mapping[JobKey, Judgement]) -> set[JobKey]:
        """Judge the jobs of which there are stacks that were not judged yet; these jobs.

        Stacks are evidence of the time at which they were read, with what was known of the ranks then. Minutes later, a
        lost connection may have taken their history.
        """
        new: set[JobKey] = set()
        for job, judgement in judgements.items():
            rx = max((stack.rx for stack in judgement.view.evidence.stacks), default=0)
            kept = self._judged.get(job)
            if rx and (kept is None or rx > kept.rx):
                is_recent = self._store.newest_rx - rx <= RECENT_NS
                self._judged[job] = _Judged(rx, self._finding(judgement) if is_recent else None)
                if is_recent:
                    new.add(job)
        for job in self._judged.keys() - judgements.keys():
            del self._judged[job]
        return new

    def _finding(self, judgement: Judgement) -> FindingDraft | None:
        """The finding of an automatic diagnosis: an undecided verdict is none, unless the job stands still.

        Nor is, until it is long, a wait for a rank that goes on (a checkpoint, an evaluation, a download), or a set-up.
        """
        verdict = judgement.verdict
        if verdict.state == "undecided" and not verdict.stalled:
            return None
        waited_s = max((state.place_s for state in judgement.view.waiting), default=0.0)
        is_long = waited_s >= LONG_ACTIVITY * self._config.stall_s
        if not is_long and ((verdict.state == "slow" and not verdict.culprits) or self._is_setting_up(judgement)):
            return None
        return verdict_finding(verdict)

    def _is_setting_up(self, judgement: Judgement) -> bool:
        """Whether a capture shows all ranks in the set-up of a job that has not trained: with light samples or not."""
        view, job = judgement.view, judgement.view.evidence.job
        is_setup = bool(view.states) and all(state.cls in SETS_UP for state in view.states)
        return is_setup and not self._signs.has_trained(job.job, job.attempt)

    def _instead(
        self, suspicion: Suspicion, judgement: Judgement | None, draft: FindingDraft | None, entry: _Diagnosed
    ) -> tuple[FindingDraft, ...] | None:
        """The findings of a job in place of `draft`, which is that of its verdict; None: that one."""
        entry.is_unread = False
        entry.timed_out = entry.timed_out + 1 if judgement is not None and _is_late(judgement) else 0
        if suspicion.is_slow:
            seen = None
            if suspicion.late is not None and judgement is not None:
                entry.late_captures += 1
                seen = entry.late.add(suspicion, judgement.view)
            return slow_findings(suspicion, draft, entry.late, seen)
        if (judgement is None or not judgement.view.captured) and entry.timed_out != 1:
            entry.is_unread = True
            return (_unread(suspicion),)  # once may be a busy node
        if draft is None and suspicion.is_silent and judgement is not None and self._is_confirmed(judgement):
            return (self._silent(suspicion),)
        return None

    def _is_confirmed(self, judgement: Judgement) -> bool:
        """Whether a capture shows every rank where its samples do, without input or output, and the job still silent.

        The verdict on such a job is open: its ranks run, and may compute.
        """
        view = judgement.view
        job = (judgement.verdict.job, view.evidence.job.attempt)
        now = {key: now for key, now in self._store.ranks.items() if (now.rank.job, now.rank.attempt) == job}
        captured = {state.key: state for state in view.captured}
        live = {key: rank.place for key, rank in now.items() if not is_gone(rank.rank)}
        if judgement.verdict.culprits or not live or captured.keys() != live.keys():
            return False
        for key, state in captured.items():
            place = live[key]
            if place is None or works(view, state) or own_call(state.last.frames) != own_call(place.frames):
                return False
        suspected = suspicions(self._activities(), self._config.stall_s)
        return any(suspicion.job == job and suspicion.is_silent for suspicion in suspected)

    def _silent(self, suspicion: Suspicion) -> FindingDraft:
        """The finding of a job whose ranks all run where they are: that it stands still, without a culprit."""
        ranks_at: dict[str, list[int]] = {}
        for key, now in self._store.ranks.items():
            if (now.rank.job, now.rank.attempt) == suspicion.job and now.place and now.rank.rank is not None:
                ranks_at.setdefault(self._signs.facts(key, now.place).text, []).append(now.rank.rank)
        largest = sorted(ranks_at.items(), key=lambda item: (-len(item[1]), item))[:MOST_PLACES]
        where = "; ".join(
            f"{'rank' if len(numbers) == 1 else 'ranks'} {fold_numbers(numbers)} at {text}" for text, numbers in largest
        )
        return FindingDraft(
            id="job_stalled", severity="warning", confidence="possible", culprits=(),
            text=f"{suspicion.job[0]}: {suspicion.text}: {where}. They poll, or compute without exchanging data.",
            evidence=("place.path_since", "place.moved_bytes 0"),
        )  # fmt: skip

    def _judgements(self) -> Sequence[Judgement]:
        return evaluation(self._store).judgements() if len(self._store.captures) else ()

    def _is_starting(self) -> bool:
        """Whether nodes may still report their first ranks: a diagnosis of the others would miss those."""
        is_early = self._store.newest_rx - self._store.started_rx < STARTS_NS
        return is_early and len(self._store.nodes) > 0 and not is_settled(self._store)

    def _begins(self, suspicion: Suspicion, now_s: float) -> bool:
        """Whether a diagnosis of the job is due; the next one is then due after a pause, even if this one fails."""
        entry = self._diagnosed.setdefault(suspicion.job, _Diagnosed(now_s))
        if suspicion.is_slow is not (entry.slow_s is not None):
            entry.due_s = now_s  # slow until now, and it stands still: or the reverse
        entry.slow_s = now_s if suspicion.is_slow else None
        is_due = now_s >= entry.due_s
        if is_due:
            entry.due_s = now_s + max(AGAIN_S, entry.pause_s)
        return is_due

    def _activities(self) -> Iterator[RankActivity]:
        transfers: dict[JobKey, Mapping[int, bool | None]] = {}
        trained: dict[JobKey, bool] = {}
        for key, now in self._store.ranks.items():
            rank, stat = now.rank, now.stat
            if is_gone(rank) or stat is None:
                continue
            age_s = step_s = None
            made = None
            if rank.rank is not None:
                made = self._store.steps.newest((rank.job, rank.attempt, rank.rank), MOST_STEPS)
            if made is not None and made[0] == (rank.pid, rank.start_ticks) and len(made[1]) >= LEAST_STEPS:
                age_s = max(0.0, (stat.mono - made[1][0].mono) / 1e9)
                step_s = 0.0  # not used while steps advance; the median is the most expensive part
                if age_s >= self._config.stall_s:
                    step_s = median(
                        (after.mono - before.mono) / 1e9 / max(1, after.step - before.step)
                        for after, before in pairwise(made[1])
                    )
            asleep_s = 0.0 if now.asleep_since is None else (stat.mono - now.asleep_since) / 1e9
            yield RankActivity(
                rank.job, rank.attempt, rank.rank, asleep_s, age_s, step_s, self._config.every_s,
                **self._place(key, now, trained), advances=self._transfers(rank, transfers),
                pulse=self._signs.pulse(rank),
            )  # fmt: skip

    def _transfers(self, rank: Rank, by_job: dict[JobKey, Mapping[int, bool | None]]) -> bool | None:
        """Whether the GPU of a rank exchanges data with others."""
        if not len(self._store.gpu_processes) or rank.rank is None:
            return None
        job = (rank.job, rank.attempt)
        if job not in by_job:
            by_job[job] = self._signs.transfers(*job)
        return by_job[job].get(rank.rank)

    def _place(self, key: ProcessKey, now: RankNow, trained: dict[JobKey, bool]) -> dict[str, Any]:
        """The fields of a rank that its light stack samples show; none where they are old. `trained` is a cache."""
        place = current_place(now)
        if place is None:
            return {}
        return {
            "place_s": (place.sampled - place.since) / 1e9,
            "path_s": (place.sampled - place.path_since) / 1e9,
            "samples": place.samples,
            "longest_quiet_s": now.longest_quiet_s,
            "quiet_s": None if place.moved_bytes is None else quiet_s(now),
            "is_patient": self._signs.activity(key, now, place, trained) in PATIENT,
        }


def _is_error(draft: FindingDraft) -> bool:
    return draft.severity == "error"


def _is_late(judgement: Judgement) -> bool:
    """Whether no stack of a job was read because the reads took too long."""
    view = judgement.view
    return bool(view.unread) and not view.captured and all(state.status == "timed_out" for state in view.unread)


def _unread(suspicion: Suspicion) -> FindingDraft:
    """The finding of a job whose stacks cannot be read: that it stands still, without a culprit."""
    return FindingDraft(
        id="job_stalled", severity="warning", confidence="possible", culprits=(),
        text=f"{suspicion.job[0]}: {suspicion.text}, and no stack of its ranks could be read.",
        evidence=suspicion.evidence or ("rank_stat.ctx_switches_s 0", "rank_stat.proc_state"),
        victims=tuple(f"rank {rank}" for rank in suspicion.ranks),
        job=suspicion.job[0],
    )  # fmt: skip
