"""The verdict on one job: state, culprits, confidence, and the evidence that would raise the confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ...records import Confidence
from ...text.format import plural, seconds
from ..stacks.frame_models import FrameClass
from . import wording
from .await_chains import in_event_loop
from .job_view import JobView, job_view_of
from .progress import (
    LEAST_COMPUTES_S,
    LEAST_LONG_WORK_S,
    Stillness,
    Straggler,
    ends,
    is_part,
    long_work_of,
    moves,
    stillness,
    straggler,
    until_started,
    works,
)
from .rank_state import WAITING, RankState
from .rules import CONFIDENCES, RuleResult, apply_rules
from .verdict import (
    Absence,
    Circle,
    CollectiveEvidence,
    Coverage,
    Culprit,
    Evidence,
    Mismatch,
    ProcessKey,
    Site,
    State,
    Verdict,
)
from .wait_for import ProcessId, wanted_end
from .wording import evidence_of

#: Places of which one process is read again with native frames, and processes read again with variables, per job.
MOST_NATIVE = 8
MOST_LOCALS = 256
#: TCP ends that a capture asks for, per job.
MOST_SOCKETS = 256
#: Processes outside of the job that are read, per job: a controller and what it waits for.
MOST_PEERS = 8


class MissingEvidence(msgspec.Struct, frozen=True):
    """What a further capture should read to raise the confidence of a verdict."""

    more_s: float  # longer sampling, s; 0.0 where it would change nothing
    native: tuple[ProcessKey, ...]  # one process of each place whose native frames would decide
    variables: tuple[ProcessKey, ...]  # processes whose `src`, `dst` and group would decide
    is_stuck: bool  # the job is stalled, so pausing a process for native frames costs nothing
    may_spin: bool = False  # ranks sleep while the others may poll for them: native frames would tell
    sockets: tuple[tuple[str, str], ...] = ()  # (local, remote) of TCP ends whose holders would decide
    tasks: tuple[ProcessKey, ...] = ()  # processes that wait in an event loop, whose tasks would decide
    peers: tuple[ProcessId, ...] = ()  # processes outside of the job whose waits would decide


class Judgement(msgspec.Struct, frozen=True):
    """A verdict, what evidence is missing, and the view of the job that it is based on."""

    verdict: Verdict
    missing: MissingEvidence
    watched_s: float
    view: JobView


def diagnose_job(evidence: Evidence) -> Judgement:
    """The verdict on one job at its newest attempt. Deterministic: equal evidence gives equal bytes."""
    view = job_view_of(evidence)
    still = until_started(view, stillness(view))
    if not view.states and not evidence.job.ranks_found:
        return Judgement(_no_ranks(view), MissingEvidence(0.0, (), (), False), 0.0, view)
    slow = straggler(view) if still.moves else None
    if slow is not None:
        verdict = _slow(view, slow)
    elif still.moves:
        verdict = _moving(view)
    elif still.is_stuck:
        verdict = _stuck(view, still, weigh(apply_rules(view, still), view, evidence.collectives))
    else:
        verdict = _too_short(view, still, weigh(apply_rules(view, still), view, evidence.collectives))
    return Judgement(verdict, _missing_evidence(view, still), view.watched_s, view)


def _no_ranks(view: JobView) -> Verdict:
    dead = view.dead
    text = f"{wording.ended(dead)}; no rank is left." if dead else "no live rank was found."
    return _verdict(view, "no_ranks", RuleResult("none", (), 0, text), "none", "check whether it was started", ())


def _moving(view: JobView) -> Verdict:
    text = f"job is progressing: stacks changed within {seconds(view.watched_s)}."
    return _verdict(view, "moving", RuleResult("none", (), 0, text), "none", "no action needed", evidence_of(view, ()))


def _slow(view: JobView, slow: Straggler) -> Verdict:
    rank, place = slow.state.rank or 0, wording.place(slow.site)
    text = (
        f"rank {rank} is slower than the others: it waits in {slow.share:.0%} of {slow.samples} samples, the others in "
        f"{slow.others:.0%}; its most frequent activity is {slow.cls}{' in ' + place if place else ''}."
    )
    result = RuleResult("straggler", ((rank, slow.cls),), 1, text)
    confidence = _confidence(result, ())
    step = wording.next_step(slow.state, slow.cls, f" on {slow.state.node}")
    verdict = _verdict(view, "slow", result, confidence, step, evidence_of(view, (slow.state,)))
    return replace(verdict, culprits=tuple(replace(culprit, site=slow.site) for culprit in verdict.culprits))


def _stuck(view: JobView, still: Stillness, result: RuleResult) -> Verdict:
    """The waiting ranks are blocked. It is a hang unless the late ranks still make progress."""
    culprit_ranks = {rank for rank, _ in result.ranks}
    culprits = [late for late in view.behind if late.rank in culprit_ranks]
    goes_on = result.kind == "rank_missing" and not all(culprit in still.stuck for culprit in culprits)
    caveats = (*result.caveats, *_coverage_caveats(view, result))
    if not still.is_whole and not goes_on:
        caveats += ("part of the job still makes progress",)
    if not result.ranks:
        is_hung = result.kind in ("external", "wait_cycle") and bool(view.waiting)
        step = result.need or "capture again"
        confidence: Confidence = "possible" if is_hung else "none"
        verdict = _verdict(view, "hung" if is_hung else "undecided", result, confidence, step, evidence_of(view, ()))
        return verdict if is_hung else replace(verdict, stalled=still.is_whole and _is_stalled(view, result))
    if still.more_s > 0 and (goes_on or result.kind == "rank_absent"):
        return _too_short(view, still, result)
    if goes_on:
        return _goes_on(view, result, culprits)
    named = tuple(rank_state for rank_state in view.states if rank_state.rank in culprit_ranks)
    is_hung = still.is_whole or result.kind in ("rank_dead", "rank_absent") or is_part(view, still, named)
    state: State = "hung" if is_hung else "slow"
    step = _next_step(view, result, named)
    proof = (*evidence_of(view, named), *(f"caveat: {caveat}" for caveat in caveats))
    return _verdict(view, state, result, _confidence(result, caveats), step, proof)


#: What a rank may do at length without a sign of progress, as a verb.
LONG_WORK: Final[Mapping[str, str]] = {"evaluating": "evaluate", "checkpointing": "save"}
#: Classes of activities that end without input from other processes.
_ENDS_BY_ITSELF: Final[frozenset[FrameClass]] = frozenset({"sleep", "compute", "compile", "gc"})


def _is_stalled(view: JobView, result: RuleResult) -> bool:
    """Whether a job without progress needs attention although no culprit is known."""
    if result.is_idle or view.pollers:
        return False  # ranks that poll may wait for work from outside
    if any(worker.runs or works(view, worker) for each in view.workers.values() for worker in each):
        return False
    return bool(view.waiting or view.device_waiting) or any(state.cls not in _ENDS_BY_ITSELF for state in view.behind)


def _goes_on(view: JobView, result: RuleResult, culprits: Sequence[RankState]) -> Verdict:
    """The late ranks make progress: the others wait for them, and nothing is broken. Only compilers are named."""
    words = wording.ranks(culprit.rank for culprit in culprits if culprit.rank is not None)
    waits = [culprit.wakes_in_s for culprit in culprits if ends(culprit) and culprit.wakes_in_s is not None]
    still = [culprit for culprit in culprits if not moves(view, culprit)]
    work = list({each for culprit in still if (each := long_work_of(view, culprit)) is not None})
    if len(waits) == len(culprits):
        how = f"go{'es' if len(waits) == 1 else ''} on by {'itself' if len(waits) == 1 else 'themselves'}"
        text = f"{result.text} {words[:1].upper()}{words[1:]} {how} within {seconds(max(waits))}."
    elif len(work) == 1:
        text = (
            f"{result.text} {words[:1].upper()}{words[1:]} may {LONG_WORK[work[0]]} for {seconds(LEAST_LONG_WORK_S)}."
        )
    else:
        text = f"{result.text} {words[:1].upper()}{words[1:]} made progress meanwhile."
    compiles = all(culprit.cls == "compile" for culprit in culprits)
    made = replace(result, text=text) if compiles else RuleResult("none", (), 0, text)
    step = f"no action needed unless {words} should have finished by now"
    confidence: Confidence = "likely" if compiles else "none"
    return _verdict(view, "slow", made, confidence, step, evidence_of(view, tuple(culprits)))


def _too_short(view: JobView, still: Stillness, result: RuleResult) -> Verdict:
    """Not sampled for long enough: the text names a suspect, the verdict does not."""
    least = view.least_s if still.more_s <= view.least_s else max(view.least_s, LEAST_COMPUTES_S)
    if not view.captured:
        text, step = result.text, result.need
    elif still.more_s > 0:
        watched_s = max(0.0, least - still.more_s)
        progress = f"sampled for {seconds(watched_s)} of the {seconds(least)} that a verdict requires"
        text, step = f"{progress}; so far: {result.text}", "sample longer: gconsole batch --diagnose"
    else:
        text, step = f"neither progressing nor stalled: {result.text}", result.need or "sample longer"
    unnamed = RuleResult("none", (), 0, text)
    return _verdict(view, "undecided", unnamed, "none", step, evidence_of(view, view.behind))


# -- parts of a verdict ------------------------------------------------------------------------------------------------


def _verdict(
    view: JobView, state: State, result: RuleResult, confidence: Confidence, step: str, proof: tuple[str, ...]
) -> Verdict:
    job = view.evidence.job
    named = {rank for rank, _ in result.ranks}
    waits = {waiting.rank for waiting in view.waiting if waiting.rank is not None} - named
    has_victims = state in ("hung", "slow")
    return Verdict(
        job=job.job, state=state, kind=result.kind,
        culprits=tuple(_culprit(view, rank, cls) for rank, cls in result.ranks),
        victims=tuple(sorted(waits)) if has_victims else (),
        confidence=confidence if result.ranks or confidence == "none" else "possible",
        summary=result.text, evidence=proof, next_step=step,
        idle=result.is_idle,
        coverage=Coverage(job.world_size, len({captured.rank for captured in view.captured}), view.samples),
    )  # fmt: skip


def _culprit(view: JobView, rank: int, cls: FrameClass) -> Culprit:
    state = view.state_of(rank)
    record = view.last_record(rank)
    if state is None:
        is_known = record is not None and cls != "missing"
        node, pid = (record.node, record.pid) if record is not None and is_known else (None, None)
        home = view.home_node(rank) if cls == "dead" else None
        return Culprit(rank=rank, node=node or home, pid=pid, class_=cls, site=None)
    worker = view.blocking_worker(state)
    site: Site | None = worker.site if worker is not None and worker.site is not None else state.site
    return Culprit(rank=rank, node=state.node, pid=state.pid, class_=cls, site=site)


def _confidence(result: RuleResult, caveats: Sequence[str]) -> Confidence:
    most = 1 if result.kind in ("collective_mismatch", "straggler") else 2
    trust = max(0, min(most, result.trust - len(caveats)))
    confidence: Confidence = CONFIDENCES[trust]
    return confidence


def _coverage_caveats(view: JobView, result: RuleResult) -> tuple[str, ...]:
    caveats = []
    unseen = {state.rank for state in view.unread} | {missing.rank for missing in view.out_of_sight}
    if result.kind not in ("rank_absent", "rank_dead"):
        unseen |= {missing.rank for missing in view.not_found}
    if unseen:
        caveats.append(f"{plural(len(unseen), 'rank')} not visible or not readable")
    if any(rank in {conflict.rank for conflict in view.evidence.job.conflicts} for rank, _ in result.ranks):
        caveats.append("two processes claim this rank")
    if any(cls == "unknown" for _, cls in result.ranks):
        caveats.append("its activity is unknown")
    return tuple(caveats)


def _next_step(view: JobView, result: RuleResult, named: Sequence[RankState]) -> str:
    rank, cls = result.ranks[0]
    state = next((state for state in named if state.rank == rank), None)
    record = view.last_record(rank)
    node = state.node if state else record.node if record and cls != "missing" else ""
    if result.kind == "p2p_cycle":
        if not any(peer.direction == "send" for member in named for peer in member.peers):
            return "make one of them send before it receives"
        places = sorted({wording.place(member.site) for member in named if member.site is not None})
        return f"check their order of sends and receives: {', '.join(places)}"
    if result.kind == "wait_cycle":
        places = sorted({wording.place(member.site) for member in named if member.site is not None})
        return f"change the order of what they wait for: {', '.join(places)}"
    if result.kind == "collective_mismatch":
        return f"check why rank {rank} takes a different code path"
    worker = view.blocking_worker(state) if state is not None else None
    if worker is not None and worker.site is not None:
        return wording.next_step(worker, worker.cls, f" on {node} (process {worker.pid})")
    return wording.next_step(state, cls, f" on {node}" if node else "")


def _missing_evidence(view: JobView, still: Stillness) -> MissingEvidence:
    """Native frames only of processes that do not move; variables only where no rank is late."""
    places: dict[object, ProcessKey] = {}
    opaque = set(view.opaque)
    for state in (*view.opaque, *view.behind, *view.waiting):
        in_user = state.trace is not None and state.trace.in_user
        is_silent = state in opaque or (in_user and (state.cls == "compute" or bool(state.peer_waits)))
        if is_silent and not state.native and state.samples > 1 and max(state.place_s, state.frozen_s) > 0:
            places.setdefault(state.calls, state.key)
    wants = not view.behind and not view.dead and any(state.locals is None for state in view.waiting)
    waits = [state for state in view.waiting if wants and state.cls in ("p2p", "collective")]
    variables = [state.key for state in waits if state.locals is None]
    return MissingEvidence(
        still.more_s, tuple(list(places.values())[:MOST_NATIVE]), tuple(variables[:MOST_LOCALS]),
        still.is_stuck, still.may_spin, _wanted_ends(view), _in_event_loops(view), _wanted_peers(view),
    )  # fmt: skip


def _in_event_loops(view: JobView) -> tuple[ProcessKey, ...]:
    """The ranks, and processes below them, that wait in an event loop whose tasks were not read."""
    states = (*view.states, *(worker for workers in view.workers.values() for worker in workers))
    waiting = (state.key for state in states if state.tasks is None and in_event_loop(state.trace))
    return tuple(sorted(waiting)[:MOST_LOCALS])


def _waits_outside(view: JobView) -> list[RankState]:
    """The processes whose waits lead out of the job, or to a rank by another process."""
    states = [state for state in view.states if state.cls not in WAITING]
    states += [worker for workers in view.workers.values() for worker in workers]
    return [state for state in (*states, *view.peers) if state.samples]


def _wanted_ends(view: JobView) -> tuple[tuple[str, str], ...]:
    """The other ends of connections that ranks, their threads and children, and peers wait for, unless held here."""
    ends = {wanted_end(target) for state in _waits_outside(view) for target in state.waits_for}
    in_own_process = {state.key for state in view.states if state.cls in ("python_lock", "sleep")}
    ends |= {  # of the threads that these may wait for
        wanted_end(target)
        for stack in view.evidence.stacks
        if stack.waits_for and (stack.node, stack.pid, stack.start_ticks) in in_own_process
        for target in stack.waits_for
    }
    return tuple(sorted(end for end in ends if end is not None)[:MOST_SOCKETS])


def _wanted_peers(view: JobView) -> tuple[ProcessId, ...]:
    """The processes outside of the job that ranks and peers wait for, and that were not read."""
    wanted = {process for state in _waits_outside(view) for process in state.outside}
    return tuple(sorted(wanted - {peer.key[:2] for peer in view.peers})[:MOST_PEERS])


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
    if source.circles:
        return _with_circle(result, view, source, source.circles[0])
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
        return replace(result, caveats=(*result.caveats, _differs(source, absence.ranks)))
    if any(state is not None and state.cls in WAITING for state in map(view.state_of, absence.ranks)):
        also = wording.agreeing("waits as well", absence.ranks)
        caveat = f"{source.source} reports {wording.ranks(absence.ranks)} missing, which {also}"
        return replace(result, caveats=(*result.caveats, caveat))
    classes = {state.rank: state.cls for state in view.states}
    return RuleResult(
        "rank_missing", tuple((rank, classes.get(rank, "unknown")) for rank in absence.ranks), 1,
        f"{wording.ranks(absence.ranks)} never entered {what}. {wording.waited(view)}.",
    )  # fmt: skip


def _with_circle(result: RuleResult, view: JobView, source: CollectiveEvidence, circle: Circle) -> RuleResult:
    """A deadlock over several groups. Named is the rank that departs from the order of its earlier steps."""
    text = f"{wording.ranks(circle.ranks)} wait for each other (deadlock): {'; '.join(circle.waits)}."
    if result.kind not in ("none", "external", "collective_mismatch"):
        return replace(result, caveats=(*result.caveats, f"{source.source} shows a circle: {text}"))
    states = [view.state_of(rank) for rank in circle.ranks]
    if any(state is not None and state.cls not in WAITING for state in states):
        return replace(result, caveats=(*result.caveats, f"{source.source} shows a circle: {text}"))
    if not circle.odd:
        need = "compare the order in which these ranks enter their groups: the Hang view lists their collectives"
        return RuleResult("wait_cycle", (), 2, text, result.caveats, need)
    departs = wording.they(circle.odd, "departs from the order of its earlier steps")
    text = f"{text} {departs[:1].upper()}{departs[1:]}."
    return RuleResult("wait_cycle", tuple((rank, "collective") for rank in circle.odd), 1, text, result.caveats)


def _with_mismatch(result: RuleResult, source: CollectiveEvidence, mismatch: Mismatch) -> RuleResult:
    sides = sorted(mismatch.sides, key=lambda side: (-len(side[1]), side[1]))
    number = "" if mismatch.seq is None else f" #{mismatch.seq}"
    text = f"group {mismatch.group}{number}: {'; '.join(f'{wording.ranks(ranks)} {what}' for what, ranks in sides)}."
    minority = sides[-1][1]
    is_tie = len(sides) != 2 or len(sides[0][1]) <= len(minority)
    if result.kind not in ("none", "external", "collective_mismatch"):
        return replace(result, caveats=(*result.caveats, f"{source.source} shows a mismatch: {text}"))
    if is_tie:
        need = "check which operation the code intends"
        return replace(result, kind="none", ranks=(), text=f"{text} {result.text}", need=need)
    if result.ranks and {rank for rank, _ in result.ranks} != set(minority):
        return replace(result, caveats=(*result.caveats, _differs(source, minority)))
    return RuleResult(
        "collective_mismatch", tuple((rank, "collective") for rank in minority), 1, f"{text} {result.text}"
    )


def _differs(source: CollectiveEvidence, ranks: Sequence[int]) -> str:
    return f"{source.source} points at {wording.ranks(ranks)} instead"
