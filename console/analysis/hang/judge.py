"""The verdict on one job: its state, whom that blames, how sure that is, and what would make it surer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...records import Confidence
from ..stacks.frame_models import FrameClass
from . import wording
from .cross_check import weigh
from .evidence import Evidence, ProcessKey
from .evidence_text import evidence_of
from .job_view import JobView, job_view_of
from .rank_state import RankState
from .rules import CONFIDENCES, RuleResult, apply_rules
from .stillness import Stillness, stillness
from .straggler import Straggler, straggler
from .verdict import Coverage, Culprit, Site, State, Verdict
from .workers import guilty_worker

#: Of each group of ranks that stand at one place one is read again, of so many groups.
MOST_NATIVE = 8
MOST_LOCALS = 256


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """What would make a verdict surer; whoever captures may fulfil it, and judge again."""

    more_s: float  # longer watching; 0.0 where it would change nothing
    native: tuple[ProcessKey, ...]  # one process of each place whose native calls would tell
    variables: tuple[ProcessKey, ...]  # processes whose `src`, `dst` and group would tell
    stands: bool  # the job stands still: stopping a process of it for a moment costs nothing


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, what would make it surer, and what it was drawn from."""

    verdict: Verdict
    wish: MissingEvidence
    watched_s: float
    scene: JobView


def diagnose_job(evidence: Evidence) -> Judgement:
    """One job at its newest attempt. The same evidence gives the same verdict, byte by byte."""
    scene = job_view_of(evidence)
    still = stillness(scene)
    if not scene.standings and not evidence.job.ranks_found:
        return Judgement(_no_ranks(scene), MissingEvidence(0.0, (), (), False), 0.0, scene)
    slow = straggler(scene) if still.moves else None
    if slow is not None:
        verdict = _slow(scene, slow)
    elif still.moves:
        verdict = _moving(scene)
    elif still.is_stuck:
        verdict = _stuck(scene, still, weigh(apply_rules(scene, still), scene, evidence.collectives))
    else:
        verdict = _too_short(scene, still, weigh(apply_rules(scene, still), scene, evidence.collectives))
    return Judgement(verdict, _wish(scene, still), scene.watched_s, scene)


def _no_ranks(scene: JobView) -> Verdict:
    dead = scene.dead
    text = f"{wording.ended(dead)}; none is left." if dead else "no rank of it was seen alive."
    return _verdict(scene, "no_ranks", RuleResult("none", (), 0, text), "none", "see whether it was started", ())


def _moving(scene: JobView) -> Verdict:
    text = f"it moves: its ranks changed place within {wording.seconds(scene.watched_s)}."
    return _verdict(scene, "moving", RuleResult("none", (), 0, text), "none", "nothing to do", evidence_of(scene, ()))


def _slow(scene: JobView, slow: Straggler) -> Verdict:
    rank = slow.standing.rank or 0
    text = (
        f"rank {rank} holds the others back: it waited for them in {slow.share:.0%} of {slow.looks} looks, they waited "
        f"in {slow.others:.0%}; mostly it was in {slow.cls}."
    )
    found = RuleResult("straggler", ((rank, slow.cls),), 1, text)
    confidence = _confidence(found, ())
    step = wording.next_step(slow.standing, slow.cls, f" on {slow.standing.node}")
    return _verdict(scene, "slow", found, confidence, step, evidence_of(scene, (slow.standing,)))


def _stuck(scene: JobView, still: Stillness, found: RuleResult) -> Verdict:
    """Nobody passes. Whether that is a hang depends on whether those who are behind go on."""
    blamed = {rank for rank, _ in found.ranks}
    culprits = [one for one in scene.behind if one.rank in blamed]
    goes_on = found.kind == "rank_missing" and not all(culprit in still.stuck for culprit in culprits)
    doubts = (*found.doubts, *_coverage_doubts(scene, found))
    if not still.is_whole and not goes_on:
        doubts += ("a part of the job still moves",)
    if not found.ranks:
        is_hung = found.kind == "external" and bool(scene.waiting)
        step = found.need or "capture again"
        confidence: Confidence = "possible" if is_hung else "none"
        return _verdict(scene, "hung" if is_hung else "undecided", found, confidence, step, evidence_of(scene, ()))
    if goes_on and still.more_s > 0:
        return _too_short(scene, still, found)
    if goes_on:
        return _goes_on(scene, found, culprits)
    named = tuple(standing for standing in scene.standings if standing.rank in blamed)
    state: State = "hung" if still.is_whole or found.kind in ("rank_dead", "rank_absent") else "slow"
    step = _next_step(scene, found, named)
    proof = (*evidence_of(scene, named), *(f"doubt: {doubt}" for doubt in doubts))
    return _verdict(scene, state, found, _confidence(found, doubts), step, proof)


def _goes_on(scene: JobView, found: RuleResult, culprits: Sequence[RankState]) -> Verdict:
    """They are waited for, and they go on: that is nobody's fault, as far as anybody can see."""
    words = wording.ranks(culprit.rank for culprit in culprits if culprit.rank is not None)
    text = f"{found.text} {words[:1].upper()}{words[1:]} went on meanwhile."
    nobody = RuleResult("none", (), 0, text)
    return _verdict(scene, "slow", nobody, "none", "watch it for longer", evidence_of(scene, tuple(culprits)))


def _too_short(scene: JobView, still: Stillness, found: RuleResult) -> Verdict:
    """Not watched for long enough: who would be blamed is said, but nobody is named."""
    least = scene.evidence.min_frozen_s
    if not scene.captured:
        text, step = found.text, found.need
    elif still.more_s > 0:
        watched_s = max(0.0, least - still.more_s)
        looked = f"watched for {wording.seconds(watched_s)} of the {wording.seconds(least)} that a hang takes"
        text, step = f"{looked}; as far as seen: {found.text}", "watch it for longer: gconsole batch --diagnose"
    else:
        text, step = f"neither moving nor still: {found.text}", found.need or "watch it for longer"
    nobody = RuleResult("none", (), 0, text)
    return _verdict(scene, "undecided", nobody, "none", step, evidence_of(scene, scene.behind))


# -- parts of a verdict ------------------------------------------------------------------------------------------------


def _verdict(
    scene: JobView, state: State, found: RuleResult, confidence: Confidence, step: str, proof: tuple[str, ...]
) -> Verdict:
    job = scene.evidence.job
    named = {rank for rank, _ in found.ranks}
    waits = {one.rank for one in scene.waiting if one.rank is not None} - named
    has_victims = state in ("hung", "slow")
    return Verdict(
        job=job.job, state=state, kind=found.kind,
        culprits=tuple(_culprit(scene, rank, cls) for rank, cls in found.ranks),
        victims=tuple(sorted(waits)) if has_victims else (),
        confidence=confidence if found.ranks or confidence == "none" else "possible",
        summary=found.text, evidence=proof, next_step=step,
        coverage=Coverage(job.world_size, len({one.rank for one in scene.captured}), scene.samples),
    )  # fmt: skip


def _culprit(scene: JobView, rank: int, cls: FrameClass) -> Culprit:
    one = scene.of(rank)
    record = scene.last_record(rank)
    if one is None:
        is_known = record is not None and cls != "missing"
        node, pid = (record.node, record.pid) if record is not None and is_known else (None, None)
        home = scene.home(rank) if cls == "dead" else None
        return Culprit(rank=rank, node=node or home, pid=pid, class_=cls, site=None)
    worker = guilty_worker(scene, one)
    site: Site | None = worker.site if worker is not None and worker.site is not None else one.site
    return Culprit(rank=rank, node=one.node, pid=one.pid, class_=cls, site=site)


def _confidence(found: RuleResult, doubts: Sequence[str]) -> Confidence:
    most = 1 if found.kind in ("collective_mismatch", "straggler") else 2
    trust = max(0, min(most, found.trust - len(doubts)))
    confidence: Confidence = CONFIDENCES[trust]
    return confidence


def _coverage_doubts(scene: JobView, found: RuleResult) -> tuple[str, ...]:
    doubts = []
    unseen = {one.rank for one in (*scene.unread,)} | {one.rank for one in scene.out_of_sight}
    if found.kind not in ("rank_absent", "rank_dead"):
        unseen |= {one.rank for one in scene.not_found}
    if unseen:
        doubts.append(f"{wording.counted(len(unseen), 'rank')} could not be seen or read")
    if any(rank in {conflict.rank for conflict in scene.evidence.job.conflicts} for rank, _ in found.ranks):
        doubts.append("two processes claim that rank")
    if any(cls == "unknown" for _, cls in found.ranks):
        doubts.append("what it does is not known")
    return tuple(doubts)


def _next_step(scene: JobView, found: RuleResult, named: Sequence[RankState]) -> str:
    rank, cls = found.ranks[0]
    one = next((standing for standing in named if standing.rank == rank), None)
    record = scene.last_record(rank)
    node = one.node if one else record.node if record and cls != "missing" else ""
    if found.kind == "p2p_cycle":
        return "let one of them send before it receives"
    if found.kind == "collective_mismatch":
        return f"see why rank {rank} takes another way through the code"
    return wording.next_step(one, cls, f" on {node}" if node else "")


def _wish(scene: JobView, still: Stillness) -> MissingEvidence:
    """Native calls only of what stands still; variables only where nobody is behind."""
    places: dict[object, ProcessKey] = {}
    opaque = set(scene.opaque)
    for one in (*scene.opaque, *scene.behind):
        is_silent = one in opaque or (one.cls == "compute" and one.trace and one.trace.in_user)
        if is_silent and not one.native and one.looks > 1 and max(one.place_s, one.frozen_s) > 0:
            places.setdefault(one.calls, one.key)
    asks = not scene.behind and not scene.dead and any(one.locals is None for one in scene.waiting)
    variables = [one.key for one in scene.waiting if asks and one.locals is None and one.cls in ("p2p", "collective")]
    return MissingEvidence(
        still.more_s, tuple(list(places.values())[:MOST_NATIVE]), tuple(variables[:MOST_LOCALS]), still.is_stuck
    )
