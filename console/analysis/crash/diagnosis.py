"""The verdict on one attempt of a job that died: the first cause, its consequences, and the ranks that were ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...records import Confidence
from . import wording
from .candidates import Candidate, candidates_of, earliest, masked, signature
from .elimination import by_elimination
from .outside import outside_event
from .rank_views import JobViews, RankView, job_views, ranks_of
from .verdict import (
    AttemptEnd,
    CrashCulprit,
    CrashEvidence,
    CrashFailure,
    CrashVerdict,
    FailureGroup,
    FirstCause,
)

#: Groups of consequences in a verdict, the largest ones.
MAX_GROUPS: Final = 32


def diagnose_crash(evidence: CrashEvidence, earlier: Sequence[CrashVerdict] = ()) -> CrashVerdict | None:
    """The verdict on an attempt; None if nothing shows that it died. `earlier`: verdicts on its earlier attempts."""
    jobs = job_views(evidence)
    if not _has_crashed(evidence, jobs):
        return None
    chosen, rivals = _first(evidence, jobs)
    if chosen is None and not rivals:
        chosen = by_elimination(jobs)
    verdict = _verdict(evidence, jobs, chosen, rivals)
    return with_attempts(verdict, earlier)


def _has_crashed(evidence: CrashEvidence, jobs: JobViews) -> bool:
    if any(view.chosen is not None or (view.exit_code or 0) != 0 for view in jobs.ranks):
        return True
    if any(end.exit_code for end in evidence.launcher_ends):
        return True
    if evidence.losses or any(
        event.kind in ("outside", "killed_step", "oom", "node_lost", "evicted") for event in jobs.events
    ):
        return True
    return any(failure.is_final for failure in jobs.loose) or any(exit_.exit_code for exit_ in jobs.exits)


def _first(evidence: CrashEvidence, jobs: JobViews) -> tuple[Candidate | None, list[Candidate]]:
    """The candidate that is the first cause; else those between which the evidence does not decide."""
    options = candidates_of(evidence, jobs)
    outside = outside_event(evidence, jobs)
    if outside is not None and all(_follows(candidate, outside) for candidate in options):
        return outside, []
    if len(options) > 1:
        options = _without_effects(options)
    if not options:
        return outside, []
    if len(options) == 1:
        return options[0], []
    first = earliest(options)
    if first is not None:
        return first, []
    if not jobs.is_teed and (printed := _printed_first(options)) is not None:
        printed.certainty = "possible"
        return printed, []
    reported = [candidate for candidate in options if any(view.is_reported_first for view in candidate.views)]
    nodes = {view.node for candidate in options for view in candidate.views}
    if len(reported) == 1 and len(nodes) == 1:
        reported[0].certainty = "possible"
        return reported[0], []
    return None, options


def _printed_first(options: list[Candidate]) -> Candidate | None:
    """The candidate whose failure comes first in the output that all ranks write to."""
    outputs = {candidate.failure.output for candidate in options}
    if len(outputs) != 1 or not all(candidate.failure.line for candidate in options):
        return None
    return min(options, key=lambda candidate: candidate.failure.line)


def _follows(candidate: Candidate, outside: Candidate) -> bool:
    """Whether a failure comes behind the end from outside, in the same output or by its time."""
    failure, event = candidate.failure, outside.failure
    if failure.output == event.output and failure.line and event.line:
        return failure.line > event.line
    return candidate.lo_ns is not None and outside.hi_ns is not None and candidate.lo_ns > outside.hi_ns


def _without_effects(options: list[Candidate]) -> list[Candidate]:
    """Without the candidates that a lost node, a kill for lack of memory or a device explains."""
    kinds = {candidate.kind for candidate in options}
    kept = options
    if "oom_killed" in kinds:
        kept = [candidate for candidate in kept if candidate.failure.category not in ("data_worker", "killed")]
        placed = [candidate for candidate in kept if candidate.kind == "oom_killed" and candidate.views]
        if placed:
            kept = [candidate for candidate in kept if candidate.kind != "oom_killed" or candidate.views]
            kept = [candidate for candidate in kept if candidate.kind != "oom_killed" or candidate is placed[0]]
        else:
            ooms = [candidate for candidate in kept if candidate.kind == "oom_killed"]
            kept = [candidate for candidate in kept if candidate.kind != "oom_killed" or candidate is ooms[0]]
    strong = [candidate for candidate in kept if candidate.certainty != "possible"]
    return strong or kept


def _verdict(evidence: CrashEvidence, jobs: JobViews, first: Candidate | None, rivals: list[Candidate]) -> CrashVerdict:
    culprit_views = first.views if first is not None else [view for rival in rivals for view in rival.views]
    culprits = [_culprit(view, first) for view in culprit_views]
    if first is not None and not first.views and first.node is not None:
        culprits = [CrashCulprit(rank=None, node=first.node, site=first.failure.site)]
    blamed = {id(view) for view in culprit_views}
    rest = [view for view in jobs.ranks if id(view) not in blamed]
    teardown = [view for view in rest if is_torn_down(view)]
    victims = [view for view in rest if view.role in ("consequence", "unknown") or is_torn_down(view)]
    kind = first.kind if first is not None else "exception" if rivals else "unknown"
    confidence: Confidence = (
        "none" if first is None and not rivals else "possible" if first is None else first.certainty
    )
    failure = first.failure if first is not None and first.failure.type else None
    return CrashVerdict(
        job=evidence.job,
        attempt=evidence.attempt,
        state="crashed",
        kind=kind,
        culprits=tuple(culprits),
        first_cause=None if failure is None or first is None else FirstCause(
            failure, tuple(ranks_of(first.views)), tuple(sorted({view.node for view in first.views if view.node}))
        ),
        cascade=_cascade(jobs, rest),
        teardown=tuple(ranks_of(teardown)),
        victims=tuple(ranks_of(victims)),
        confidence=confidence if culprits or failure else "none",
        summary=wording.summary(evidence, jobs, first, rivals),
        evidence=wording.evidence_lines(evidence, jobs, first, rivals, teardown),
        next_step=wording.next_step(first, rivals),
        is_deliberate=first is not None and first.is_deliberate,
    )  # fmt: skip


def is_torn_down(view: RankView) -> bool:
    """Whether the launcher ended a rank: by SIGTERM, or SIGKILL after it."""
    if view.chosen is not None and view.chosen.role == "teardown":
        return True
    return view.exit_code in (-15, 143) or (view.is_stopped and view.exit_code in (-9, 137))


def _culprit(view: RankView, first: Candidate | None) -> CrashCulprit:
    failure = view.chosen if view.chosen is not None and view.role == "cause" else first.failure if first else None
    return CrashCulprit(view.rank, view.node, view.pid, view.exit_code, failure.site if failure else None)


def _cascade(jobs: JobViews, rest: list[RankView]) -> tuple[FailureGroup, ...]:
    """Consequences folded over ranks."""
    groups: dict[tuple[str, str], list[tuple[CrashFailure, int | None]]] = {}
    placed = [(view.chosen, view.rank) for view in rest if view.chosen is not None and view.role != "teardown"]
    loose = [(failure, None) for failure in jobs.loose if failure.is_final and failure.role == "consequence"]
    for failure, rank in (*placed, *(entry for entry in loose if entry[0].category != "launcher_report")):
        groups.setdefault((failure.type, masked(failure.message)), []).append((failure, rank))
    folded = [
        FailureGroup(
            ranks=tuple(sorted({rank for _, rank in members if rank is not None})),
            text=_common([f"{failure.type}: {failure.message}" for failure, _ in members]),
            category=members[0][0].category,
            count=len(members),
            unknown_ranks=sum(rank is None for _, rank in members),
        )
        for members in groups.values()
    ]
    return tuple(sorted(folded, key=lambda group: (-group.count, group.ranks))[:MAX_GROUPS])


def _common(texts: Sequence[str]) -> str:
    """The text with … for the words that differ."""
    if len(set(texts)) == 1:
        return texts[0]
    words = [re.split(r"(\s+)", text) for text in texts]
    if len({len(parts) for parts in words}) != 1:
        return texts[0]
    return "".join(parts[0] if len(set(parts)) == 1 else "…" for parts in zip(*words, strict=True))


def with_attempts(verdict: CrashVerdict, earlier: Sequence[CrashVerdict]) -> CrashVerdict:
    """The verdict with the list of all attempts, and whether the last two failed the same way."""
    if not earlier:
        return verdict
    all_verdicts = (*earlier, verdict)
    attempts = tuple(
        AttemptEnd(
            each.attempt, each.kind, tuple(culprit.rank for culprit in each.culprits if culprit.rank is not None),
            _text_of(each), each.first_cause.failure.category if each.first_cause else "",
        )
        for each in all_verdicts
    )  # fmt: skip
    before = next((each for each in reversed(earlier) if each.first_cause is not None), earlier[-1])
    repeats = _repeats(before, verdict)
    return wording.with_attempts(verdict, attempts, repeats, before.attempt)


def _text_of(verdict: CrashVerdict) -> str:
    cause = verdict.first_cause
    return f"{cause.failure.type}: {cause.failure.message}" if cause else verdict.summary.partition("; attempt ")[0]


def _repeats(before: CrashVerdict, after: CrashVerdict) -> bool | None:
    """Whether two attempts failed the same way; None where one of them is not known."""
    if before.first_cause is None or after.first_cause is None:
        return None
    return before.kind == after.kind and signature(before.first_cause.failure) == signature(after.first_cause.failure)
