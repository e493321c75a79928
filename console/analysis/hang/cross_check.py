"""What counts collectives, beside what stacks say: where they agree the verdict gains, where they differ it loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import wording
from .evidence import Absence, CollectiveEvidence, Mismatch
from .job_view import WAITING, JobView
from .rules import RuleResult


def weigh(found: RuleResult, scene: JobView, sources: Sequence[CollectiveEvidence]) -> RuleResult:
    """The blame of the stacks, with what the sources say of it.

    A source may name whom the stacks cannot, where the stacks do not speak against it: who is missing from a collective
    that others wait in, or who differs from the others of its group. It is believed over nobody.
    """
    for source in sources:
        found = _weigh(found, scene, source)
    return found


def _weigh(found: RuleResult, scene: JobView, source: CollectiveEvidence) -> RuleResult:
    absence = next((one for one in source.absences if one.ranks), None)
    mismatch = source.mismatches[0] if source.mismatches else None
    if absence is not None:
        return _with_absence(found, scene, source, absence)
    if mismatch is not None:
        return _with_mismatch(found, source, mismatch)
    return found


def _with_absence(found: RuleResult, scene: JobView, source: CollectiveEvidence, absence: Absence) -> RuleResult:
    named = {rank for rank, _ in found.ranks}
    number = "" if absence.seq is None else f" #{absence.seq}"
    members = wording.counted(len(absence.ranks) + len(absence.entered), "rank")
    what = f"{absence.op}{number} of group {absence.group} ({members})"
    if named == set(absence.ranks):
        text = f"{wording.ranks(absence.ranks)} never entered {what}. {found.text}"
        return replace(found, text=text, trust=found.trust + 1)
    if named:
        return replace(found, doubts=(*found.doubts, _differs(source, absence.ranks)))
    waits = [rank for rank in absence.ranks if (one := scene.of(rank)) is not None and one.cls in WAITING]
    if waits:
        also = wording.agreeing("waits as well", absence.ranks)
        doubt = f"{source.source} misses {wording.ranks(absence.ranks)}, which {also}"
        return replace(found, doubts=(*found.doubts, doubt))
    classes = {standing.rank: standing.cls for standing in scene.standings}
    return RuleResult(
        "rank_missing", tuple((rank, classes.get(rank, "unknown")) for rank in absence.ranks), 1,
        f"{wording.ranks(absence.ranks)} never entered {what}. {wording.waited(scene)}.",
    )  # fmt: skip


def _with_mismatch(found: RuleResult, source: CollectiveEvidence, mismatch: Mismatch) -> RuleResult:
    camps = sorted(mismatch.camps, key=lambda camp: (-len(camp[1]), camp[1]))
    number = "" if mismatch.seq is None else f" #{mismatch.seq}"
    said = "; ".join(f"{wording.ranks(members)} {what}" for what, members in camps)
    text = f"group {mismatch.group}{number}: {said}."
    small = camps[-1][1]
    is_tie = len(camps) != 2 or len(camps[0][1]) <= len(small)
    if found.kind not in ("none", "external", "collective_mismatch"):
        return replace(found, doubts=(*found.doubts, f"{source.source} shows a mismatch: {text}"))
    if is_tie:
        return replace(found, kind="none", ranks=(), text=f"{text} {found.text}", need="see which side the code means")
    if found.ranks and {rank for rank, _ in found.ranks} != set(small):
        return replace(found, doubts=(*found.doubts, _differs(source, small)))
    return RuleResult("collective_mismatch", tuple((rank, "collective") for rank in small), 1, f"{text} {found.text}")


def _differs(source: CollectiveEvidence, ranks: Sequence[int]) -> str:
    return f"{source.source} points at {wording.ranks(ranks)} instead"
