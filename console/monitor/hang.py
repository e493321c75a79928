"""Every job of a store, judged: the step from what is known to what it means, the same live, offline and in replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..analysis.collectives import LEAST_WAIT_S, Communication, communication
from ..analysis.collectives.align import JobKey
from ..analysis.collectives.communication import jobs_in
from ..analysis.collectives.evidence import evidence_of as collectives_evidence
from ..analysis.finding import FindingDraft
from ..analysis.hang import CollectiveEvidence, Evidence, Judgement, Still, Verdict, diagnose_job
from ..analysis.jobs import JobSummary, JobTable, job_table
from ..analysis.stacks.frame_models import BadModel, Model, parse_model
from ..core.store import CaptureNow, Store
from ..records import Severity, Stack


def judgements(store: Store) -> list[Judgement]:
    """Every job, by name, with what would make its verdict surer. Without any capture nothing is judged."""
    return [diagnose_job(evidence) for evidence in evidences(store)]


def evidences(store: Store) -> list[Evidence]:
    """What is known of every job, by name; nothing in it changes when the store does, so a thread may judge it."""
    if not len(store.captures):
        return []
    stacks = [stack for capture in store.captures.values() for stack in capture.stacks]
    return [evidence_of(store, job, stacks) for job in jobs_of(store).jobs]


def verdicts(store: Store) -> list[Verdict]:
    """The verdicts alone."""
    return [one.verdict for one in judgements(store)]


def evidence_of(store: Store, job: JobSummary, stacks: Sequence[Stack]) -> Evidence:
    """All that the store has about one job. `stacks` are of all captures."""
    ranks = {key: now for key in store.ranks if (now := store.ranks[key]).rank.job == job.job}
    still = {
        key: Still(now.stat.t / 1e9, (now.stat.mono - now.still_since) / 1e9)
        for key, now in ranks.items()
        if now.stat is not None and now.still_since is not None
    }
    return Evidence(
        job=job,
        ranks=tuple(now.rank for _, now in sorted(ranks.items())),
        stacks=tuple(stack for stack in stacks if stack.job == job.job and stack.attempt == job.attempt),
        still=still,
        nodes=tuple(sorted(now.name for now in store.nodes.values() if now.state and now.state.state == "ok")),
        models=tuple(hang_models(store)),
        min_frozen_s=store.console.min_frozen_s if store.console else 5.0,
        collectives=collective_evidence(store, job),
    )


def collective_evidence(store: Store, job: JobSummary) -> tuple[CollectiveEvidence, ...]:
    """What counts collectives has said of a job, in the newest capture that has any of it."""
    least_s = store.console.min_frozen_s if store.console else LEAST_WAIT_S
    said = newest_communication(store, (job.job, job.attempt), least_s)
    return collectives_evidence(said) if said else ()


def hang_models(store: Store) -> list[Model]:
    """The models by which this console reads stacks, beside the built-in ones."""
    found = []
    for text in store.console.hang_models if store.console else ():
        try:
            found.append(parse_model(text))
        except BadModel:
            pass  # checked before it was recorded; another version may have had classes that this one does not know
    return found


def verdict_finding(verdict: Verdict) -> FindingDraft | None:
    """The finding that a verdict makes; None for a job that moves, or is not there."""
    if verdict.state in ("moving", "no_ranks"):
        return None
    severity: Severity = "error" if verdict.state == "hung" else "warning"
    return FindingDraft(
        id=verdict.kind if verdict.kind != "none" else verdict.state,
        severity=severity,
        confidence=verdict.confidence,
        culprits=tuple(f"rank {culprit.rank}" for culprit in verdict.culprits),
        text=f"{verdict.job}: {verdict.summary}",
        evidence=verdict.evidence,
        victims=tuple(f"rank {rank}" for rank in verdict.victims),
    )


def newest_communication(store: Store, job: JobKey, least_wait_s: float = LEAST_WAIT_S) -> Communication | None:
    """What the newest capture with anything of a job says of it; None where no source has said anything."""
    ranks = [now.rank for now in store.ranks.values()]
    for capture in reversed(store.captures.values()):
        if job in jobs_in(capture.collectives, capture.groups):
            return communication(capture.collectives, capture.groups, job, ranks, least_wait_s)
    return None


def newest_communications(store: Store) -> Mapping[JobKey, tuple[CaptureNow, Communication]]:
    """By job, the newest capture that has anything of it, and what it says."""
    ranks = [now.rank for now in store.ranks.values()]
    found = {}
    for capture in store.captures.values():
        for job in jobs_in(capture.collectives, capture.groups):
            found[job] = capture
    return {
        job: (capture, communication(capture.collectives, capture.groups, job, ranks))
        for job, capture in sorted(found.items(), key=lambda item: item[0])
    }


def jobs_of(store: Store) -> JobTable:
    """The jobs of everything the store knows now."""
    ranks = store.ranks.values()
    return job_table(
        (now.rank for now in ranks),
        (now.stat for now in ranks if now.stat),
        (now.state for now in store.nodes.values() if now.state),
    )
