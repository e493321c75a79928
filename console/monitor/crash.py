"""Verdicts on jobs that died, from a store, live and in replay alike, and their findings, raised without a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..analysis.crash.diagnosis import diagnose_crash
from ..analysis.crash.findings import crash_finding
from ..analysis.crash.verdict import CrashEvidence, CrashVerdict
from ..analysis.finding import FindingDraft
from ..core.derived import Derived
from ..core.store import Store
from ..records import Finding, Output
from ..records.kinds import is_gone
from ..text.secrets import without_secrets
from .crash_evidence import crash_evidence, launchers_of
from .past_jobs import RECENT_NS, ended_before, ended_rx_of, past_outputs

#: ns after the first end of a rank until a job that is dying is judged: the outputs and ends of other ranks arrive.
SETTLE_NS: Final = 3_000_000_000
#: ns after the first end of a rank for which a launcher that lives may be ending the others, to restart the job.
UNWIND_NS: Final = 10_000_000_000
#: ns after the last end for which a launcher that lives may restart the job: torchrun's rendezvous waits up to 30 s for
#: further nodes (`last_call_timeout`), and on a busy node the new ranks take seconds to appear.
RESTART_NS: Final = 40_000_000_000
#: ns in which a node to which only the connection was lost is usually there again.
RETURN_NS: Final = 20_000_000_000
#: ns for which a newer attempt must live until an earlier one that failed is no finding any more.
RECOVERED_NS: Final = 300_000_000_000
#: Ended ranks and outputs from which on jobs are judged in a thread, and the pause after that in multiples of its time.
MANY: Final = 64
PAUSE: Final = 2.0


class CrashCourse(msgspec.Struct, frozen=True):
    """When the ranks of an attempt ended, and what came after it. Times are of the console, ns."""

    first_end_rx: int  # when the first end of a rank was reported
    last_end_rx: int
    is_complete: bool  # no rank of the attempt lives
    may_restart: bool  # a launcher lives
    newer: int | None = None  # a newer attempt with living ranks
    newer_rx: int = 0  # since when
    is_recovered: bool = False  # a newer attempt ended well
    lost_rx: int = 0  # when the last of its nodes was lost
    ended_before_ns: int | None = None  # of a job that had ended before the console came: how long before


class Crash(msgspec.Struct, frozen=True):
    """The newest attempt of a job that died."""

    verdict: CrashVerdict
    course: CrashCourse


def crash_fold(store: Store, clock: Callable[[], float] = time.monotonic) -> Derived[tuple[Crash, ...]]:
    """The crashes of a store, judged again when ranks, outputs or faults change; `clock` is monotonic, in seconds."""

    def size() -> int:
        return len(store.endings.outputs) + sum(is_gone(now.rank) for now in store.ranks.values())

    sources = (store.endings.changed_since,)
    return Derived(
        store, sources, lambda: prepare_crashes(store), (), every_s=1.0, size=size, thread_above=MANY, pause=PAUSE,
        clock=clock,
    )  # fmt: skip


def crashes_of(store: Store) -> tuple[Crash, ...]:
    """The crash of every job that died, the newest first."""
    return prepare_crashes(store)()


def crash_verdicts(store: Store) -> list[CrashVerdict]:
    """The verdict on every job that died and was not restarted successfully, the newest first."""
    return prepare_verdicts(store)()


def prepare_verdicts(store: Store) -> Callable[[], list[CrashVerdict]]:
    """The same, with the work in a function that may run in any thread."""
    work, now_rx = prepare_crashes(store), store.newest_rx
    return lambda: [
        crash.verdict for crash in work() if not crash.course.is_recovered and not is_outdated(crash.course, now_rx)
    ]


def prepare_crashes(store: Store) -> Callable[[], tuple[Crash, ...]]:
    """Copy what the diagnosis needs; the returned function may run in any thread."""
    evidence = [each for each in crash_evidence(store) if _may_have_crashed(each)]
    past = past_outputs(store)
    courses = [
        _past_course(past[key]) if (key := (each.job, each.attempt or 0)) in past else _course_of(store, *key)
        for each in evidence
    ]

    def work() -> tuple[Crash, ...]:
        pairs = zip(evidence, courses, strict=True)
        newest = (_newest_crash(list(attempts)) for _, attempts in groupby(pairs, key=lambda pair: pair[0].job))
        crashes = (crash for crash in newest if crash is not None)
        return tuple(sorted(crashes, key=lambda crash: (-crash.course.last_end_rx, crash.verdict.job)))

    return work


def _may_have_crashed(evidence: CrashEvidence) -> bool:
    """Whether a process ended in another way than with exit code 0, as far as known."""
    if not evidence.ranks and evidence.launchers:
        return True  # all that is left of it
    ended = [rank for rank in evidence.ranks if rank.state == "ended"]
    return any(rank.exit_code != 0 for rank in ended) or any(each.exit_code for each in evidence.launcher_ends)


def _newest_crash(attempts: Sequence[tuple[CrashEvidence, CrashCourse]]) -> Crash | None:
    """The newest of the attempts of a job that died."""
    earlier: list[CrashVerdict] = []
    newest = None
    for evidence, course in attempts:
        verdict = diagnose_crash(evidence, tuple(earlier))
        if verdict is not None and _is_shown(evidence, verdict, course):
            verdict = redacted(verdict)
            if course.ended_before_ns is not None:
                verdict = ended_before(verdict, course.ended_before_ns)
            earlier.append(verdict)
            newest = Crash(verdict, course)
    return newest


def redacted(verdict: CrashVerdict) -> CrashVerdict:
    """The verdict with secrets in all of its texts hidden: it quotes outputs and messages of kernels."""
    return msgspec.convert(_redacted(msgspec.to_builtins(verdict)), CrashVerdict)


def _redacted(value: Any) -> Any:
    match value:
        case str():
            return without_secrets(value)
        case list() | tuple():
            return [_redacted(item) for item in value]
        case dict():
            return {key: _redacted(item) for key, item in value.items()}
    return value


def _is_shown(evidence: CrashEvidence, verdict: CrashVerdict, course: CrashCourse) -> bool:
    """Whether more than an error in an output shows the crash: a program that handles its errors logs them, too."""
    if course.ended_before_ns is not None:
        outputs = [output for end in evidence.ranks for output in end.outputs]
        if verdict.kind == "launcher":
            return False  # ended from outside, on purpose
        if any(output.stream == "error_file" for output in outputs):
            return True  # torch writes it when a rank fails
        cause = verdict.first_cause
        if evidence.launchers and cause and cause.failure.role == "cause" and not cause.failure.is_caught:
            return True  # the agent sends files that end with the report of a launcher or a rank
    codes = [end.exit_code for end in evidence.ranks] + [end.exit_code for end in evidence.launcher_ends]
    codes += [culprit.exit_code for culprit in verdict.culprits]  # also as a launcher reports it
    if any(codes):
        return True
    if verdict.kind == "node_lost":
        return bool(verdict.cascade)
    cause = verdict.first_cause
    return verdict.kind not in ("exception", "unknown") or (cause is not None and cause.failure.is_uncaught)


def _past_course(outputs: Sequence[Output]) -> CrashCourse:
    rx = max(output.rx for output in outputs)
    ended_rx = max(ended_rx_of(output) or 0 for output in outputs)
    return CrashCourse(rx, ended_rx, is_complete=True, may_restart=False, ended_before_ns=rx - ended_rx)


def _course_of(store: Store, job: str, attempt: int) -> CrashCourse:
    ranks = [now.rank for now in store.ranks.values() if now.rank.job == job]
    own = [rank for rank in ranks if rank.attempt == attempt]
    launchers = launchers_of(store, job)
    ends = [rank.rx for rank in own if is_gone(rank)] or [process.rx for process in launchers.failed] or [0]
    newer = [rank for rank in ranks if rank.attempt > attempt]
    living = [rank for rank in newer if not is_gone(rank)]
    return CrashCourse(
        min(ends), max(ends), all(is_gone(rank) for rank in own), bool(launchers.living),
        newer=max((rank.attempt for rank in living), default=None),
        newer_rx=min((rank.rx for rank in living), default=0),
        is_recovered=bool(newer) and not living and not any(rank.exit_code for rank in newer),
        lost_rx=store.endings.lost_rx((job, attempt)),
    )  # fmt: skip


# -- findings ----------------------------------------------------------------------------------------------------------


class CrashFindings:
    """A source of findings: jobs that died, as soon as their ends and outputs are complete."""

    name = "crash"

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._crashes = crash_fold(store, clock)
        self._diagnosis: asyncio.Task[None] | None = None

    async def evaluate(self, *, is_last: bool) -> list[FindingDraft]:
        """Findings of the jobs that have died and were not restarted successfully.

        A large job is judged in the background: other findings do not wait for it, except at the end.
        """
        if self._diagnosis is not None and (is_last or self._diagnosis.done()):
            task, self._diagnosis = self._diagnosis, None
            await task  # raises what it raised
        if is_last:
            await self._crashes.update()
        else:
            self._crashes.refresh(self._judge)
        now_rx = self._store.newest_rx
        due = [crash for crash in self._crashes.value if is_last or is_settled(crash.course, now_rx)]
        return [draft for crash in due if (draft := _draft(crash, now_rx)) is not None]

    def verdict_on(self, job: str) -> CrashVerdict | None:
        """The verdict on a job that died, as last judged."""
        return next((crash.verdict for crash in self._crashes.value if crash.verdict.job == job), None)

    def _judge(self, work: Coroutine[None, None, None]) -> None:
        self._diagnosis = asyncio.create_task(work, name="crash diagnosis")


def is_settled(course: CrashCourse, now_rx: int) -> bool:
    """Whether what the nodes report about the end of a job has arrived, and no restart is to be expected."""
    if now_rx - course.first_end_rx < SETTLE_NS or (course.lost_rx and now_rx - course.lost_rx < RETURN_NS):
        return False
    if course.newer is not None or not course.may_restart:
        return True
    if course.is_complete:
        return now_rx - course.last_end_rx >= RESTART_NS
    return now_rx - course.first_end_rx >= UNWIND_NS


def is_outdated(course: CrashCourse, now_rx: int) -> bool:
    """Whether a job ended before the console came, and too long ago to matter."""
    return course.ended_before_ns is not None and now_rx - course.last_end_rx >= RECENT_NS


def crash_findings(store: Store) -> list[Finding]:
    """Findings of the crashes of a store; existing findings keep their `first_seen`."""
    findings = []
    for draft in filter(None, (_draft(crash, store.newest_rx) for crash in crashes_of(store))):
        previous = store.findings.get((draft.id, draft.culprits, draft.job))
        first_seen = previous.first_seen if previous is not None else store.newest_rx
        findings.append(
            Finding(
                id=draft.id, severity=draft.severity, confidence=draft.confidence, culprits=draft.culprits,
                victims=draft.victims, text=draft.text, evidence=draft.evidence, job=draft.job,
                first_seen=first_seen,
            )
        )  # fmt: skip
    return findings


def _draft(crash: Crash, now_rx: int) -> FindingDraft | None:
    """The finding of a crash; None after a restart that goes well.

    A restart under way makes it a warning, and so does an end before the console came: the job may have been given up.
    """
    course = crash.course
    if (
        is_outdated(course, now_rx)
        or course.is_recovered
        or (course.newer is not None and now_rx - course.newer_rx >= RECOVERED_NS)
    ):
        return None
    draft = crash_finding(crash.verdict)
    if course.ended_before_ns is not None:
        return replace(draft, severity="warning")
    if course.newer is None:
        return draft
    text = f"{draft.text.rstrip('.')}. It was restarted: attempt {course.newer} runs."
    return replace(draft, severity="warning", text=text)
