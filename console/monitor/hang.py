"""Hang diagnosis of the jobs in a store, live and in replay; `diagnose` captures stacks until every verdict is final.

One sample proves nothing. Sampling goes on until a stall has lasted long enough; a last capture then reads what raises
the confidence: variables that name peers, and native frames of one process per ambiguous place."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, get_args
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from ..analysis.collectives.align import JobKey
from ..analysis.collectives.communication import LEAST_WAIT_S, Communication, communication, jobs_in
from ..analysis.collectives.communication import evidence_of as collectives_evidence
from ..analysis.crash.verdict import CrashKind
from ..analysis.finding import FindingDraft
from ..analysis.hang.diagnosis import Judgement, diagnose_job
from ..analysis.hang.progress import LEAST_COMPUTES_S
from ..analysis.hang.verdict import Evidence, Still, Verdict
from ..analysis.jobs import JobRanks, JobTable, job_table
from ..analysis.stacks.frame_models import BadModel, Model, parse_model
from ..config import Config, ConfigError
from ..core.control import CaptureRequest, Control, PeerProcess, new_capture
from ..core.store import CaptureNow, RankNow, Store
from ..records import ConsoleRecord, Finding, NodeState, Place, Rank, RankStat, Severity, Stack
from ..records.kinds import is_gone
from .rank_gpus import gpu_figures


class Evaluation:
    """The verdicts on all jobs in one state of a store: computed once, by the first thread that needs them."""

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        self.evidence = tuple(evidence)
        self._lock = threading.Lock()
        self._judgements: tuple[Judgement, ...] | None = None

    def judgements(self) -> tuple[Judgement, ...]:
        """The verdict on every job, by name, with the evidence that is missing. Callable in any thread."""
        with self._lock:
            if self._judgements is None:
                self._judgements = tuple(diagnose_job(evidence) for evidence in self.evidence)
            return self._judgements


#: The latest evaluation of each store, and the state of the store that it is valid for.
_LATEST: Final[WeakKeyDictionary[Store, tuple[object, Evaluation]]] = WeakKeyDictionary()


def evaluation(store: Store) -> Evaluation:
    """The evaluation of the captures, ranks and nodes of a store; the same one until any of them changes.

    Diagnosis, views, findings and report share it, so that a job is evaluated once per capture.
    """
    state = (
        store.console,
        store.captures.table.version,
        [now.rank for now in store.ranks.values()],
        [now.state for now in store.nodes.values()],
    )  # fmt: skip
    known_state, latest = _LATEST.get(store, (None, None))
    if latest is None or known_state != state:
        latest = Evaluation(_evidence(store))
        _LATEST[store] = state, latest
    return latest


def verdicts(store: Store) -> list[Verdict]:
    """The verdict on every job, by name. Empty without any capture."""
    return [judgement.verdict for judgement in evaluation(store).judgements()]


def _evidence(store: Store) -> list[Evidence]:
    """The evidence on every job, by name: copies, so that a thread may evaluate it while the store changes."""
    if not len(store.captures):
        return []
    stacks = [stack for capture in store.captures.values() for stack in capture.stacks]
    return [evidence_of(store, job, stacks) for job in jobs_of(store).jobs]


def evidence_of(store: Store, job: JobRanks, stacks: Sequence[Stack]) -> Evidence:
    """The evidence on one job. `stacks` are those of all captures."""
    ranks = {key: now for key in store.ranks if (now := store.ranks[key]).rank.job == job.job}
    still = {
        key: Still(now.stat.t / 1e9, (now.stat.mono - now.still_since) / 1e9)
        for key, now in ranks.items()
        if now.stat is not None and now.still_since is not None
    }
    least_s = store.console.min_frozen_s if store.console else LEAST_WAIT_S
    newest = newest_communication(store, (job.job, job.attempt), least_s)
    return Evidence(
        job=job,
        ranks=tuple(now.rank for _, now in sorted(ranks.items())),
        stacks=tuple(stack for stack in stacks if stack.job == job.job and stack.attempt == job.attempt),
        still=still,
        nodes=tuple(sorted(now.name for now in store.nodes.values() if now.state and now.state.state == "ok")),
        models=tuple(hang_models(store)),
        min_frozen_s=least_s,
        collectives=collectives_evidence(newest) if newest else (),
        connections=tuple(record for capture in store.captures.values() for record in capture.connections),
        gpus=gpu_figures(store, job.job, job.attempt),
        places={key: _unbroken(now, now.place) for key, now in ranks.items() if now.place is not None},
        longest_pause_s=max((now.longest_pause_s for now in ranks.values() if not is_gone(now.rank)), default=0.0),
    )


def console_record(config: Config, version: str) -> ConsoleRecord:
    """The record that identifies a console and its frame models. Raises ConfigError for an invalid `[hang] models`."""
    for text in config.hang.models:
        try:
            parse_model(text)
        except BadModel as error:
            raise ConfigError("", "hang.models", str(error)) from error
    return ConsoleRecord(
        cluster=config.cluster, version=version, hang_models=config.hang.models, min_frozen_s=config.hang.min_frozen_s
    )


def hang_models(store: Store) -> list[Model]:
    """The frame models of this console, in addition to the built-in ones."""
    models = []
    for text in store.console.hang_models if store.console else ():
        try:
            models.append(parse_model(text))
        except BadModel:
            pass  # validated when recorded, but a newer version may have classes that this one lacks
    return models


def _unbroken(now: RankNow, place: Place) -> Place:
    """The place of a rank, where it is at most since its connections are silent: before, it made steps in between."""
    if place.moved_bytes is None:
        return place
    quiet_since = now.quiet_since or place.sampled
    return replace(place, since=max(place.since, quiet_since), path_since=max(place.path_since, quiet_since))


def verdict_finding(verdict: Verdict) -> FindingDraft | None:
    """The finding of a verdict; None for a job that makes progress or has no ranks."""
    if verdict.state in ("moving", "no_ranks"):
        return None
    severity: Severity = "error" if verdict.state == "hung" or verdict.stalled else "warning"
    return FindingDraft(
        id="job_stalled" if verdict.stalled else verdict.kind if verdict.kind != "none" else verdict.state,
        severity=severity,
        confidence=verdict.confidence,
        culprits=tuple(f"rank {culprit.rank}" for culprit in verdict.culprits),
        text=f"{verdict.job}: {verdict.summary}",
        evidence=verdict.evidence,
        victims=tuple(f"rank {rank}" for rank in verdict.victims),
        job=verdict.job,
    )


def newest_communication(store: Store, job: JobKey, least_wait_s: float = LEAST_WAIT_S) -> Communication | None:
    """The collectives of a job in the newest capture that has any; None without a source."""
    ranks = [now.rank for now in store.ranks.values()]
    for capture in reversed(store.captures.values()):
        if job in jobs_in(capture.collectives, capture.groups):
            return communication(capture.collectives, capture.groups, job, ranks, least_wait_s)
    return None


def newest_communications(store: Store) -> Mapping[JobKey, tuple[CaptureNow, Communication]]:
    """By job, the newest capture with collectives of it, and these."""
    ranks = [now.rank for now in store.ranks.values()]
    newest = {}
    for capture in store.captures.values():
        for job in jobs_in(capture.collectives, capture.groups):
            newest[job] = capture
    return {
        job: (capture, communication(capture.collectives, capture.groups, job, ranks))
        for job, capture in sorted(newest.items(), key=lambda item: item[0])
    }


def jobs_of(store: Store) -> JobTable:
    """The jobs of the store, as of now."""
    states = [now.state for now in store.nodes.values() if now.state]
    return jobs_of_ranks([(now.rank, now.stat) for now in store.ranks.values()], states)


def jobs_of_ranks(ranks: Sequence[tuple[Rank, RankStat | None]], states: Iterable[NodeState]) -> JobTable:
    """The jobs of these ranks, each with its newest activity; in any thread."""
    return job_table((rank for rank, _ in ranks), (stat for _, stat in ranks if stat), states)


def verdict_findings(store: Store) -> list[Finding]:
    """Findings of the verdicts of a store; existing findings keep their `first_seen`.

    Where a rank crashed, the finding of the crash covers that others wait for it.
    """
    open_findings = [finding for finding in store.findings.values() if finding.cleared_at is None]
    crashed = {finding.job for finding in open_findings if finding.id in CRASHES and finding.severity == "error"}
    findings = []
    for verdict in verdicts(store):
        finding = verdict_finding(verdict)
        if finding is None or (finding.id == "rank_dead" and verdict.job in crashed):
            continue
        previous = store.findings.get((finding.id, finding.culprits, finding.job))
        findings.append(
            Finding(
                id=finding.id, severity=finding.severity, confidence=finding.confidence, culprits=finding.culprits,
                victims=finding.victims, text=finding.text, evidence=finding.evidence, job=finding.job,
                first_seen=previous.first_seen if previous is not None else store.newest_rx,
            )
        )  # fmt: skip
    return findings


#: Ids of findings of jobs that died.
CRASHES: Final = frozenset(get_args(CrashKind))
#: The first capture is short: it suffices where the job was monitored before.
FIRST_SAMPLES, FIRST_EVERY_S = 3, 0.12
#: Later captures: interval in s, and at most this many samples each, so that sampling can end early.
EVERY_S, MOST_SAMPLES = 0.5, 6
#: The longest interval in s, where a rank that computes is given time.
LONG_EVERY_S: Final = 1.0
#: Seconds that a diagnosis waits for the first sample of nodes that have just connected.
MOST_FIRST_SAMPLE_S: Final = 10.0
#: Sampling ends after this many times `min_frozen_s`, for jobs that stall and resume.
MAX_SAMPLING: Final = 3.0
#: Captures that follow connections: to a process outside of the job, to what that waits for, and so on.
MAX_HOPS: Final = 5
#: Jobs of whose living ranks the output is requested: those in which a rank has ended.
MOST_DYING: Final = 256
#: Variables that name the peer of a rank. The wrapper is torch's: its arguments contain the process group.
VARIABLES: Final = ("src", "dst", "peer", "wrapper:kwargs")


class Diagnosis(msgspec.Struct, frozen=True):
    """Options of a diagnosis: samples and their interval in s, None for automatic.

    `native`: native frames of stalled processes only (None), of any ambiguous place (True), or of none (False).
    """

    samples: int | None = None
    every_s: float | None = None
    native: bool | None = None
    locals: tuple[str, ...] = ()
    flight_pipe: bool = False  # in the first capture: the dump of a stalled job does not change
    jobs: tuple[str, ...] | None = None  # None: all
    is_automatic: bool = False  # then no process is paused for native frames unless its job stands still


async def diagnose(
    store: Store, control: Control, options: Diagnosis, on_capture: Callable[[CaptureRequest], object] | None = None
) -> Sequence[Judgement]:
    """Capture and evaluate until more captures would not change the verdicts; `on_capture` is called for each order.

    The verdicts are those of `evaluation(store)` afterwards, of the jobs that were captured.
    """

    async def capture(order: CaptureRequest) -> Sequence[Judgement]:
        if on_capture is not None:
            on_capture(order)
        await control.capture(order)
        judgements = await asyncio.to_thread(evaluation(store).judgements)
        return [each for each in judgements if options.jobs is None or each.verdict.job in options.jobs]

    await _first_samples(store)
    judgements = await capture(CaptureRequest(
        new_capture(), jobs=options.jobs, samples=options.samples or FIRST_SAMPLES,
        every_s=FIRST_EVERY_S if options.every_s is None else options.every_s, locals=options.locals,
        flight_pipe=options.flight_pipe, outputs=_dying(store),
    ))  # fmt: skip
    if any(state.status == "timed_out" for judgement in judgements for state in judgement.view.unread):
        judgements = await capture(_longer(options, EVERY_S))  # a busy node: once more
    least = store.console.min_frozen_s if store.console else LEAST_WAIT_S
    most_s, spent_s = max(MAX_SAMPLING * least, LEAST_COMPUTES_S + least), 0.0
    requested = _Requested()
    last: CaptureRequest | None = None
    for is_detailed in (False, True):  # details may show that something must be watched for longer
        while (more_s := max(_more_s(judgements), requested.found_s(judgements, least))) > 0 and spent_s < most_s:
            sockets, peers = requested.add(judgements)
            order = replace(_longer(options, more_s), sockets=sockets, peers=peers)
            spent_s += order.samples * order.every_s
            judgements = await capture(order)
        last = None if is_detailed else _detailed(judgements, options, *requested.add(judgements))
        for _ in range(MAX_HOPS):
            if last is None:
                break
            judgements = await capture(last)
            last = _further(options, *requested.add(judgements))
    return judgements


async def _first_samples(store: Store) -> None:
    """Wait until nodes that have just connected have reported their ranks: a capture reads those."""
    began = time.monotonic()
    with_ranks = {now.rank.node for now in store.ranks.values()}
    nodes = [now for name, now in store.nodes.items() if name not in with_ranks]
    while any(now.state is not None and now.state.state == "ok" and not now.cost for now in nodes):
        if time.monotonic() - began > MOST_FIRST_SAMPLE_S:
            break
        await asyncio.sleep(0.05)


def _dying(store: Store) -> tuple[str, ...]:
    """The jobs in which a rank has ended: what the others have written may say why."""
    return tuple(sorted({now.rank.job for now in store.ranks.values() if is_gone(now.rank)})[:MOST_DYING])


class _Requested:
    """What this diagnosis has asked for: ends of connections, processes outside of jobs, and ranks found meanwhile."""

    def __init__(self) -> None:
        self._sockets: set[tuple[str, str]] = set()
        self._peers: set[PeerProcess] = set()
        self._ranks: set[tuple[str, int, int]] = set()  # (job, attempt, rank)

    def found_s(self, judgements: Sequence[Judgement], least_s: float) -> float:
        """`least_s` if ranks were found after the last capture began, which may be the culprits; else 0, s.

        A rank that became another program is recognized only after some seconds, for example.
        """
        jobs = [(judgement.view.evidence.job, judgement.view) for judgement in judgements if judgement.missing.is_stuck]
        new = {(job.job, job.attempt, rank) for job, view in jobs for rank in view.uncaptured} - self._ranks
        self._ranks |= new
        return least_s if new else 0.0

    def add(self, judgements: Sequence[Judgement]) -> tuple[tuple[tuple[str, str], ...], tuple[PeerProcess, ...]]:
        """The ends and processes that would decide and that no capture has asked for yet."""
        sockets = {end for judgement in judgements for end in judgement.missing.sockets} - self._sockets
        peers = {
            PeerProcess(*process, judgement.view.evidence.job.job, judgement.view.evidence.job.attempt)
            for judgement in judgements
            for process in judgement.missing.peers
        } - self._peers
        self._sockets |= sockets
        self._peers |= peers
        return tuple(sorted(sockets)), tuple(sorted(peers))


def _further(
    options: Diagnosis, sockets: tuple[tuple[str, str], ...], peers: tuple[PeerProcess, ...]
) -> CaptureRequest | None:
    """A capture of these alone; None without any."""
    if not sockets and not peers:
        return None
    samples = FIRST_SAMPLES if peers else 1
    return CaptureRequest(
        new_capture(), options.jobs, samples=samples, every_s=FIRST_EVERY_S, only=(), sockets=sockets, peers=peers
    )


def _more_s(judgements: Sequence[Judgement]) -> float:
    return max((judgement.missing.more_s for judgement in judgements), default=0.0)


def _longer(options: Diagnosis, more_s: float) -> CaptureRequest:
    apart_s = min(LONG_EVERY_S, max(EVERY_S, more_s / MOST_SAMPLES))
    every_s = apart_s if options.every_s is None else max(options.every_s, 0.05)
    samples = options.samples or min(MOST_SAMPLES, max(2, math.ceil(more_s / every_s) + 1))
    return CaptureRequest(new_capture(), options.jobs, samples=samples, every_s=every_s, locals=options.locals)


def _detailed(
    judgements: Sequence[Judgement],
    options: Diagnosis,
    sockets: tuple[tuple[str, str], ...],
    peers: tuple[PeerProcess, ...],
) -> CaptureRequest | None:
    """The last capture, of the processes whose variables or native frames raise the confidence; None without any."""
    missing = [judgement.missing for judgement in judgements]
    variables = {(node, pid) for evidence in missing if evidence.is_stuck for node, pid, _ in evidence.variables}
    native = {
        (node, pid)
        for evidence in missing
        if options.native is not False
        and (evidence.is_stuck or options.native or (evidence.may_spin and not options.is_automatic))
        for node, pid, _ in evidence.native
    }
    loops = {(node, pid) for evidence in missing if evidence.is_stuck for node, pid, _ in evidence.tasks}
    if not variables and not native and not loops:
        return _further(options, sockets, peers)
    return CaptureRequest(
        new_capture(), options.jobs, only=tuple(sorted(variables | native | loops)),
        locals=(*VARIABLES, *options.locals), native=tuple(sorted(native)), sockets=sockets, peers=peers,
        tasks=bool(loops),
    )  # fmt: skip
