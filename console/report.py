"""The report of a headless run: what a pipeline reads. A pure fold of the store, so live and replay say the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from .analysis.jobs import JobTable, job_table
from .records import Failure, Finding, Severity
from .store import NodeNow, Store

SCHEMA = "gconsole.report/1"
_RANKING: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


class NodeLine(msgspec.Struct):
    """One node: reached or not, and why not."""

    node: str
    state: str  # ok, failed, lost
    error: Failure | None
    hostname: str | None
    python: str | None
    kernel: str | None
    agent: str | None
    simulated: bool | None  # None where the node never said


class MissingRank(msgspec.Struct):
    rank: int | None
    reason: str


class JobLine(msgspec.Struct):
    job: str
    attempt: int
    world_size: int | None
    ranks_found: list[int]
    ranks_missing: list[MissingRank]
    conflicts: list[str]


class RankLine(msgspec.Struct):
    job: str
    attempt: int
    rank: int | None
    local_rank: int | None
    node: str
    pid: int
    gpu: str | None
    state: str
    step: int | None
    source: str


class CostLine(msgspec.Struct):
    """What the agent cost its node, at its last word."""

    node: str
    cpu_pct: float | None
    rss_bytes: int | None
    tx_bytes_s: float | None


class FindingLine(msgspec.Struct):
    id: str
    severity: Severity
    confidence: str
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    text: str
    evidence: tuple[str, ...]
    first_seen: str
    cleared_at: str | None


class Report(msgspec.Struct):
    """`gconsole.report/1`. Instants are ISO-8601 UTC, with the nanoseconds of the console's clock beside them."""

    schema: str
    cluster: str
    simulated: bool  # true where any node's data is
    started_at: str | None
    started_at_ns: int
    ended_at: str | None
    ended_at_ns: int
    nodes: list[NodeLine]
    jobs: list[JobLine]
    ranks: list[RankLine]
    verdicts: list[object]
    findings: list[FindingLine]
    agent_cost: list[CostLine]


def make_report(store: Store) -> Report:
    """Everything the store knows that a pipeline may ask."""
    table = jobs_of(store)
    nodes = sorted(store.nodes.values(), key=lambda now: natural(now.name))
    return Report(
        schema=SCHEMA,
        cluster=store.console.cluster if store.console else "",
        simulated=any(now.node.simulated for now in nodes if now.node),
        started_at=iso(store.started_rx),
        started_at_ns=store.started_rx,
        ended_at=iso(store.newest_rx),
        ended_at_ns=store.newest_rx,
        nodes=[_node_line(now) for now in nodes],
        jobs=[_job_line(job) for job in table.jobs],
        ranks=[_rank_line(row) for job in table.jobs for row in job.rows],
        verdicts=[],
        findings=[_finding_line(finding) for finding in store.findings.values()],
        agent_cost=[
            CostLine(now.name, now.cost.cpu_pct, now.cost.rss_bytes, now.cost.tx_bytes_s) for now in nodes if now.cost
        ],
    )


def exit_code(report: Report, fail_on: Sequence[str] = ("error",)) -> int:
    """The exit code of a headless command: 4 nothing reachable, 1 a finding that counts, 3 partial, 0 fine.

    `fail_on` is one severity (that or a worse one counts), or ids of findings.
    """
    if not any(line.state == "ok" for line in report.nodes):
        return 4
    if any(_counts(line, fail_on) for line in report.findings):
        return 1
    unseen = any(job.ranks_missing for job in report.jobs)
    return 3 if unseen or any(line.state != "ok" for line in report.nodes) else 0


def _counts(line: FindingLine, fail_on: Sequence[str]) -> bool:
    if line.cleared_at is not None:
        return False
    threshold = next((_RANKING[word] for word in fail_on if word in _RANKING), None)
    if threshold is not None:
        return _RANKING[line.severity] >= threshold
    return line.id in fail_on
