"""The end of a job from outside: which signal, scheduler or user ended it, and whether on purpose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ...text.format import iso, plural, some
from .candidates import SECOND_NS, Candidate
from .exceptions import failure_of, parse_instant
from .launchers import SIGNAL_NAMES, OutsideEvent
from .progress_lines import counted_step
from .rank_views import Certainty, JobViews, RankView, ranks_of
from .verdict import CrashEvidence, CrashFailure, LauncherEnd

#: Signals by which a person or a scheduler ends a job. SIGHUP is none: it also follows from a lost connection.
_ENDING_SIGNALS: Final = frozenset((2, 15))
#: The exit codes of processes that these ended.
_SIGNALLED: Final = frozenset((-2, -15, 130, 143))
#: The words for an event of a scheduler or launcher, and whether it ends a job on purpose.
_REASONS: Final = tuple(
    (re.compile(pattern), words, is_deliberate)
    for pattern, words, is_deliberate in (
        (
            r"TIME LIMIT|DUE TO TIMEOUT|time limit|RUNLIMIT|walltime|\bcput\b|: (?:TIMEOUT|DEADLINE)",
            "its time limit",
            True,
        ),
        (r"PREEMPT|Preempted", "a preemption", True),
        (r"REQUEUE", "a requeue", True),
        (r"CANCELLED", "a cancellation", True),
        (r"TERM_OWNER", "its owner", True),
        (r"TERM_ADMIN", "an administrator", True),
        (r"NODE FAILURE", "a node failure", False),
        (r"Evicted|low on resource", "an eviction", False),
    )
)
_SIGNAL: Final = re.compile(r"(?:Received |got signal: )(?:Signals\.)?(?P<name>SIG[A-Z]+|[0-9]{1,2})\b")
#: States of a Slurm job that was ended on purpose, as the log record of its state has them.
_SLURM_ENDED: Final = re.compile(r"^Slurm job [0-9_]+: (?:CANCELLED|TIMEOUT|PREEMPTED|DEADLINE)\b")
#: Lines at the end of an output that are searched for the last step.
_LAST_LINES: Final = 400
_STEP_WORD: Final = re.compile(r"(?i)step|iter")
_MOST_NODES: Final = 4


def outside_event(evidence: CrashEvidence, jobs: JobViews) -> Candidate | None:
    """The end of the job by its scheduler, a user or a signal to its launcher, as a candidate."""
    candidate = _reported(jobs) or _of_launcher(evidence, jobs) or _of_slurm(evidence) or _of_ranks(evidence, jobs)
    if candidate is not None and _has_failed_before(jobs):
        return None
    if candidate is not None and evidence.losses:
        candidate.is_deliberate = False  # a node that shuts down terminates its processes, too
    return candidate


def _has_failed_before(jobs: JobViews) -> bool:
    """Whether a rank ended with an error of its own well before a signal ended the first of the others."""
    signalled = [
        view.ended_lo_ns for view in jobs.ranks if view.exit_code in _SIGNALLED and view.ended_lo_ns is not None
    ]
    return bool(signalled) and any(
        view.exit_code and view.exit_code not in _SIGNALLED and not view.is_stopped and view.role != "teardown"
        and view.ended_hi_ns is not None and view.ended_hi_ns < min(signalled) - SECOND_NS for view in jobs.ranks
    )  # fmt: skip


def _reported(jobs: JobViews) -> Candidate | None:
    """What launchers and schedulers print."""
    events = [event for event in jobs.events if event.kind in ("outside", "evicted")]
    if not events:
        events = [event for event in jobs.events if event.kind == "killed_step" and not _failed_before(jobs, event)]
    if not events:
        return None
    event = events[0]
    if (number := _signal_of(event)) is not None:
        by = _signal_text(number, event.source, [each.node for each in events if _signal_of(each) == number])
        is_deliberate = number in _ENDING_SIGNALS
    else:
        words, is_deliberate = next(
            ((words, is_deliberate) for pattern, words, is_deliberate in _REASONS if pattern.search(event.text)),
            ("an event outside of it", False),
        )
        by = f"{words}: {event.text}"
    failure = msgspec.structs.replace(failure_of("outside", event.source, event.text), line=event.line, node=event.node)
    lo_ns, bound_ns = parse_instant(event.text)
    hi_ns = lo_ns + (bound_ns or 0) if lo_ns is not None else None
    return _candidate(failure, by, (f"{event.source}: {event.text}",), lo_ns, hi_ns, is_deliberate=is_deliberate)


def _candidate(
    failure: CrashFailure, by: str, evidence: tuple[str, ...] = (), lo_ns: int | None = None,
    hi_ns: int | None = None, certainty: Certainty = "certain", *, is_deliberate: bool,
) -> Candidate:  # fmt: skip
    return Candidate(
        "launcher", failure, [], certainty, lo_ns, hi_ns, evidence=evidence, ended_by=by, is_deliberate=is_deliberate
    )


def _signal_of(event: OutsideEvent) -> int | None:
    """The number of the signal that a launcher reports to have received."""
    match = _SIGNAL.search(event.text)
    if match is None:
        return None
    names = {name: number for number, name in SIGNAL_NAMES.items()}
    return names.get(match["name"]) if match["name"].startswith("SIG") else int(match["name"])


def _signal_text(number: int, program: str, nodes: Sequence[str | None]) -> str:
    """`SIGINT to torchrun on node1`."""
    names = sorted({node for node in nodes if node is not None})
    on = f" on {some(names, _MOST_NODES)}" if names else ""
    return f"{_name_of(number)} to {program}{on}"


def _name_of(number: int) -> str:
    return SIGNAL_NAMES.get(number, f"signal {number}")


def _failed_before(jobs: JobViews, event: OutsideEvent) -> bool:
    """Whether a task had failed before its step was cancelled: srun does that itself then."""
    return any(exit_.exit_code and exit_.exit_code != -15 and exit_.line < event.line for exit_ in jobs.exits)


def _of_launcher(evidence: CrashEvidence, jobs: JobViews) -> Candidate | None:
    """Launchers that a signal ended, by their exit codes, before any rank failed by itself."""
    ended = [(end, number) for end in evidence.launcher_ends if (number := _signal_in(end.exit_code)) is not None]
    if not ended:
        return None
    first, number = min(ended, key=lambda pair: (pair[0].ended_hi_ns is None, pair[0].ended_hi_ns or 0))
    if any(_failed_by_itself(view, first) for view in jobs.ranks):
        return None
    nodes = [end.node for end, own in ended if own == number and end.program == first.program]
    lines = tuple(f"exit code of {end.program} on {end.node}, pid {end.pid}: {end.exit_code}" for end, _ in ended)
    failure = failure_of("outside", _name_of(number), lines[0])
    return _candidate(
        failure, _signal_text(number, first.program, nodes), lines, hi_ns=first.ended_hi_ns,
        is_deliberate=number in _ENDING_SIGNALS,
    )  # fmt: skip


def _signal_in(code: int | None) -> int | None:
    """The signal that an exit code shows, directly or as a shell reports it."""
    if code is None:
        return None
    return -code if code < 0 else code - 128 if code in (130, 137, 139, 143) else None


def _failed_by_itself(view: RankView, launcher: LauncherEnd) -> bool:
    """Whether a rank ended with an error before its launcher did, as far as both times are known."""
    if not view.exit_code or view.is_stopped or view.ended_hi_ns is None or launcher.ended_hi_ns is None:
        return False
    return view.ended_hi_ns < launcher.ended_hi_ns and view.exit_code not in _SIGNALLED


def _of_slurm(evidence: CrashEvidence) -> Candidate | None:
    """The state that Slurm has of the job."""
    for fault in evidence.faults:
        own = fault.subject is not None and re.search(rf"(?<![0-9]){re.escape(fault.subject)}(?![0-9])", evidence.job)
        if own and _SLURM_ENDED.match(fault.text):
            words = next(words for pattern, words, _ in _REASONS if pattern.search(fault.text))
            failure = failure_of("outside", "Slurm", fault.text)
            by = f"{words}: {fault.text}"
            return _candidate(failure, by, (f"Slurm, on {fault.node}: {fault.text}",), is_deliberate=True)
    return None


def _of_ranks(evidence: CrashEvidence, jobs: JobViews) -> Candidate | None:
    """A signal that ended all ranks, by their exit codes or last words. A launcher that fails sends SIGTERM, too."""
    interrupted = [
        view for view in jobs.ranks
        if view.exit_code in (-2, 130) or (view.chosen is not None and view.chosen.category == "interrupted")
    ]  # fmt: skip
    if interrupted and all(
        view in interrupted or view.role in ("teardown", "consequence", "silent") for view in jobs.ranks
    ):
        failure = failure_of("outside", "SIGINT", "the ranks were interrupted")
        return _candidate(failure, "SIGINT to its ranks", certainty="likely", is_deliberate=True)
    stopped = [
        view for view in jobs.ranks
        if view.exit_code in (-15, 143) or (view.chosen and view.chosen.category == "terminated")
    ]  # fmt: skip
    if stopped and len(stopped) == len(jobs.ranks) and not any(view.is_reported_first for view in stopped):
        has_launcher = bool(evidence.launchers or evidence.launcher_ends or any(view.is_stopped for view in stopped))
        failure = failure_of("outside", "SIGTERM", "all ranks were terminated")
        return _candidate(failure, "SIGTERM to all of its ranks", certainty="likely", is_deliberate=not has_launcher)
    return None


# -- sentences ---------------------------------------------------------------------------------------------------------


def outside_text(evidence: CrashEvidence, jobs: JobViews, first: Candidate) -> str:
    """The summary: who ended the job, when, how many ranks, and the last step that they printed."""
    by = f"{first.ended_by or first.failure.message}{_at(evidence, jobs)}"
    running = sum(view.state == "running" for view in jobs.ranks)
    if running:
        verb = "runs" if running == 1 else "run"
        return f"the launcher ended by {by}; {plural(running, 'rank')} still {verb} without it"
    count = len(list(ranks_of(jobs.ranks))) or len(jobs.ranks)
    details = [plural(count, "rank")] if count else []
    details += [f"last printed step {step}"] if (step := _last_step(evidence)) is not None else []
    return f"the job was ended by {by}" + (f" ({', '.join(details)})" if details else "")


def _at(evidence: CrashEvidence, jobs: JobViews) -> str:
    """When the first process of the job ended, on the common clock."""
    ends = [view.ended_hi_ns for view in jobs.ranks] + [end.ended_hi_ns for end in evidence.launcher_ends]
    first_ns = min((end for end in ends if end is not None), default=None)
    when = iso(first_ns)
    return f" at {when[:19]}Z" if when is not None else ""


def _last_step(evidence: CrashEvidence) -> int | None:
    """The highest step in the last lines of the outputs."""
    outputs = [output for end in evidence.ranks for output in end.outputs] + [
        each.output for each in evidence.launchers
    ]
    steps = [
        counted[1]
        for output in outputs if output.text is not None
        for line in output.text.splitlines()[-_LAST_LINES:]
        if (counted := counted_step(line[:300])) is not None and _STEP_WORD.search(counted[0])
    ]  # fmt: skip
    return max(steps, default=None)
