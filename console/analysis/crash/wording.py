"""The sentences of a crash verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ...text.format import iso, plural
from ...text.nodeset_fold import fold_ranks
from .candidates import SECOND_NS, Candidate
from .categories import CATEGORIES
from .launchers import SIGNAL_NAMES
from .outside import outside_text
from .rank_views import JobViews, RankView, ranks_of
from .verdict import AttemptEnd, CrashEvidence, CrashFailure, CrashVerdict

#: Lines of evidence at most.
MAX_EVIDENCE: Final = 12


def ranks_text(views: Sequence[RankView]) -> str:
    """`rank 3`, `ranks 0-3`, with the node of a single one."""
    ranks = list(ranks_of(list(views)))
    if not ranks:
        nodes = sorted({view.node for view in views if view.node})
        return f"a rank on {', '.join(nodes[:4])}" if nodes else "a rank"
    node = f" on {views[0].node}" if len(views) == 1 and views[0].node else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}{node}"


def failure_text(failure: CrashFailure) -> str:
    """`ValueError: bad loss at train.py:58 main`."""
    message = failure.message.strip().rstrip(".") or next(iter(failure.details.strip().splitlines()), "").strip()
    text = f"{failure.type}: {message}" if message else failure.type
    text = text if len(text) <= 300 else f"{text[:299]}…"
    site = failure.site
    return f"{text} at {site.file.rsplit('/', 1)[-1]}:{site.line} {site.function}" if site else text


def summary(evidence: CrashEvidence, jobs: JobViews, first: Candidate | None, rivals: Sequence[Candidate]) -> str:
    """The verdict as one sentence."""
    if first is None and rivals:
        parts = "; ".join(f"{_who(rival, jobs)}: {failure_text(rival.failure)}" for rival in rivals[:4])
        return f"{len(rivals)} different failures, and the evidence does not show which was first: {parts}"
    if first is None:
        return _unknown(jobs)
    who, category = _who(first, jobs), CATEGORIES[first.failure.category]
    match first.kind:
        case "launcher":
            return outside_text(evidence, jobs, first)
        case "node_lost":
            lost = ranks_text(first.views) if first.views else "its ranks"
            return f"{first.node or 'a node'} was lost with {lost}: {first.failure.message}"
        case "oom_killed":
            return f"{who} was killed for lack of memory: {first.failure.message}"
        case "hardware":
            return f"{who} failed after a device fault on {first.node or 'its node'}: {failure_text(first.failure)}"
        case "signalled":
            return f"{who} {category.words}: {failure_text(first.failure)}"
        case "unknown" if not first.views:
            return f"the cause is unknown; {_who(first, jobs)} {category.words}: {failure_text(first.failure)}"
        case "unknown":
            return f"{who} {first.failure.message}"
    return f"{who} {category.words}: {failure_text(first.failure)}"


def _who(candidate: Candidate, jobs: JobViews) -> str:
    if candidate.views:
        has_all = len(candidate.views) == len(jobs.ranks) > 1
        return f"every rank ({fold_ranks(list(ranks_of(candidate.views)))})" if has_all else ranks_text(candidate.views)
    views = [view for view in jobs.ranks if view.chosen is candidate.failure]
    if views:
        return ranks_text(views)
    if candidate.failure.rank is not None:
        return f"rank {candidate.failure.rank}"
    return f"a process on {candidate.node}" if candidate.node else "a process"


def _unknown(jobs: JobViews) -> str:
    affected = [view for view in jobs.ranks if view.role == "consequence"]
    if affected:
        return f"the cause is unknown: the outputs contain only consequences, on {ranks_text(affected)}"
    ended = [view for view in jobs.ranks if view.exit_code]
    if ended:
        return f"{ranks_text(ended)} ended with {_codes(ended)}; the cause is unknown: no output shows why"
    return "the cause is unknown: no output shows why the job ended"


def _codes(views: Sequence[RankView]) -> str:
    """`exit code 3`, `SIGKILL`, `exit codes 1 and 3`: at most three, the most frequent first."""
    counted = Counter(view.exit_code for view in views if view.exit_code).most_common()
    signals = [SIGNAL_NAMES.get(-code, f"signal {-code}") for code, _ in counted if code < 0]
    codes = [str(code) for code, _ in counted if code > 0]
    if codes:
        codes[0] = f"exit {'code' if len(codes) == 1 else 'codes'} {codes[0]}"
    words = [*codes, *signals]
    return " and ".join(words) if len(words) <= 3 else f"{', '.join(words[:3])} and {len(words) - 3} more"


def evidence_lines(
    evidence: CrashEvidence, jobs: JobViews, first: Candidate | None, rivals: Sequence[Candidate],
    teardown: Sequence[RankView],
) -> tuple[str, ...]:  # fmt: skip
    """What the verdict rests on, each line with its source."""
    lines = list(_evidence(evidence, jobs, first, rivals, teardown))
    return tuple(lines[:MAX_EVIDENCE])


def _evidence(
    evidence: CrashEvidence, jobs: JobViews, first: Candidate | None, rivals: Sequence[Candidate],
    teardown: Sequence[RankView],
) -> Iterator[str]:  # fmt: skip
    for candidate in (*([first] if first is not None else ()), *rivals):
        yield from candidate.evidence[:3]
        yield from _failure_evidence(candidate, jobs)
    first_ended = [view for view in jobs.ranks if view.is_reported_first]
    if first is not None and not first.views and first_ended:
        yield f"the launcher reports {ranks_text(first_ended)} as the first failure"
    affected: dict[str, list[RankView]] = {}
    for view in jobs.ranks:
        if view.chosen is not None and view.role == "consequence":
            affected.setdefault(view.chosen.category, []).append(view)
    for category, views in sorted(affected.items(), key=lambda item: -len(item[1])):
        yield f"{ranks_text(views)} {CATEGORIES[category].words}, a consequence"
    if teardown:
        yield f"{ranks_text(teardown)} ended by the launcher's signal"
    missing = [view for view in jobs.ranks if not view.has_output and view.chosen is None]
    reasons: dict[str, list[RankView]] = {}
    for view in missing:
        reasons.setdefault(view.unread, []).append(view)
    for reason, views in reasons.items():
        if reason or len(missing) < len(jobs.ranks):
            yield f"no output of {ranks_text(views)}{f': {reason}' if reason else ''}"
    if jobs.absent:
        yield f"no data on {plural(jobs.absent, 'rank')} of {evidence.world_size}"


def _failure_evidence(candidate: Candidate, jobs: JobViews) -> Iterator[str]:
    failure = candidate.failure
    if failure.line and failure.output:
        when = f" at {iso(failure.at_ns)}" if failure.at_ns is not None else ""
        yield f"output {failure.output} line {failure.line}{when}: {failure_text(failure)}"
    for line in failure.details.splitlines():
        if line.startswith("caused by "):
            yield line[:400]
    codes = {view.exit_code for view in candidate.views if view.exit_code is not None}
    if codes:
        text = ", ".join(str(code) for code in sorted(codes))
        yield f"exit code of {ranks_text(candidate.views)}: {text}"
    reported = [view for view in candidate.views if view.is_reported_first]
    if reported:
        yield f"the launcher reports {ranks_text(reported)} as the first failure"
    if candidate.hi_ns is not None and candidate.lo_ns is not None and not failure.at_ns:
        width = (candidate.hi_ns - candidate.lo_ns) / SECOND_NS
        yield f"it failed at {iso(candidate.lo_ns)}, known to {width:.3g} s"


def next_step(first: Candidate | None, rivals: Sequence[Candidate]) -> str:
    """What to do."""
    if first is None:
        if rivals:
            return "Read the failures in the order of their times; keep timestamps in the outputs to decide."
        return "Keep the output of every rank (torchrun --log-dir, srun --output with %t), and diagnose these files."
    if first.kind == "hardware":
        return CATEGORIES["cuda_hardware"].next_step
    return CATEGORIES[first.failure.category].next_step


def with_attempts(
    verdict: CrashVerdict, attempts: tuple[AttemptEnd, ...], repeats: bool | None, before: int | None
) -> CrashVerdict:
    """The verdict with its attempts, compared in its summary with the attempt `before`."""
    words = {True: "in the same way as", False: "in another way than", None: ""}[repeats]
    other = f"attempt {before}" if before is not None else "the attempt before"
    text = f"; attempt {verdict.attempt} failed {words} {other}" if words and verdict.attempt is not None else ""
    return msgspec.structs.replace(verdict, attempts=attempts, repeats=repeats, summary=verdict.summary + text)
