"""Cross-check of the stacks with sources that count collectives: agreement raises the confidence, else it drops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...text.format import plural
from . import wording
from .evidence import Absence, CollectiveEvidence, Mismatch
from .job_view import WAITING, JobView
from .rules import RuleResult


def weigh(result: RuleResult, view: JobView, sources: Sequence[CollectiveEvidence]) -> RuleResult:
    """The result of the stack rules, adjusted by each source in turn.

    A source may name ranks that the stacks cannot (missing from a collective, or different from the rest of the group),
    unless the stacks contradict it. It never overrides a rank that the stacks name.
    """
    for source in sources:
        result = _weigh(result, view, source)
    return result


def _weigh(result: RuleResult, view: JobView, source: CollectiveEvidence) -> RuleResult:
    absence = next((absence for absence in source.absences if absence.ranks), None)
    if absence is not None:
        return _with_absence(result, view, source, absence)
    if source.mismatches:
        return _with_mismatch(result, source, source.mismatches[0])
    return result


def _with_absence(result: RuleResult, view: JobView, source: CollectiveEvidence, absence: Absence) -> RuleResult:
    named = {rank for rank, _ in result.ranks}
    number = "" if absence.seq is None else f" #{absence.seq}"
    members = plural(len(absence.ranks) + len(absence.entered), "rank")
    what = f"{absence.op}{number} of group {absence.group} ({members})"
    if named == set(absence.ranks):
        text = f"{wording.ranks(absence.ranks)} never entered {what}. {result.text}"
        return replace(result, text=text, trust=result.trust + 1)
    if named:
        return replace(result, doubts=(*result.doubts, _differs(source, absence.ranks)))
    if any(state is not None and state.cls in WAITING for state in map(view.state_of, absence.ranks)):
        also = wording.agreeing("waits as well", absence.ranks)
        doubt = f"{source.source} reports {wording.ranks(absence.ranks)} missing, which {also}"
        return replace(result, doubts=(*result.doubts, doubt))
    classes = {state.rank: state.cls for state in view.states}
    return RuleResult(
        "rank_missing", tuple((rank, classes.get(rank, "unknown")) for rank in absence.ranks), 1,
        f"{wording.ranks(absence.ranks)} never entered {what}. {wording.waited(view)}.",
    )  # fmt: skip


def _with_mismatch(result: RuleResult, source: CollectiveEvidence, mismatch: Mismatch) -> RuleResult:
    sides = sorted(mismatch.sides, key=lambda side: (-len(side[1]), side[1]))
    number = "" if mismatch.seq is None else f" #{mismatch.seq}"
    text = f"group {mismatch.group}{number}: {'; '.join(f'{wording.ranks(ranks)} {what}' for what, ranks in sides)}."
    minority = sides[-1][1]
    is_tie = len(sides) != 2 or len(sides[0][1]) <= len(minority)
    if result.kind not in ("none", "external", "collective_mismatch"):
        return replace(result, doubts=(*result.doubts, f"{source.source} shows a mismatch: {text}"))
    if is_tie:
        need = "check which operation the code intends"
        return replace(result, kind="none", ranks=(), text=f"{text} {result.text}", need=need)
    if result.ranks and {rank for rank, _ in result.ranks} != set(minority):
        return replace(result, doubts=(*result.doubts, _differs(source, minority)))
    return RuleResult(
        "collective_mismatch", tuple((rank, "collective") for rank in minority), 1, f"{text} {result.text}"
    )


def _differs(source: CollectiveEvidence, ranks: Sequence[int]) -> str:
    return f"{source.source} points at {wording.ranks(ranks)} instead"
