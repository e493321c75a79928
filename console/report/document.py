"""The whole report and its JSON, a pure fold of the store, so live and replay reports are equal; exit codes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..analysis.finding import IDS
from ..analysis.hang.verdict import Verdict
from ..analysis.skew.findings import SkewSnapshot
from ..core.store import Store
from ..monitor.hang import jobs_of, verdicts
from ..monitor.skew import skew_of
from ..text.format import iso
from ..text.nodeset_fold import natural
from ..text.sanitize import pretty
from .captures import CaptureLine, capture_lines, is_partial
from .collectives import CollectivesLine, collectives_line
from .findings import RANKING, FindingLine, finding_lines
from .nodes import (
    CostLine,
    GpuLine,
    JobLine,
    NicLine,
    NodeLine,
    RankLine,
    TopologyLines,
    cost_lines,
    gpu_lines,
    job_line,
    nic_lines,
    node_line,
    rank_line,
    topology_lines,
)
from .skew import ClocksLine, SkewLine, clocks_line, skew_line

SCHEMA = "gconsole.report/1"


class Report(msgspec.Struct):
    """`gconsole.report/1`. Instants are ISO-8601 UTC, with the nanoseconds of the console's clock beside them."""

    schema: str
    cluster: str
    simulated: bool  # whether any node's data is
    started_at: str | None
    started_at_ns: int
    ended_at: str | None
    ended_at_ns: int
    nodes: list[NodeLine]
    jobs: list[JobLine]
    ranks: list[RankLine]
    gpus: list[GpuLine]
    nics: list[NicLine]
    topology: TopologyLines
    captures: list[CaptureLine]
    collectives: CollectivesLine
    clocks: ClocksLine
    skew: SkewLine
    verdicts: list[Verdict]  # of every job with a capture
    findings: list[FindingLine]
    agent_cost: list[CostLine]


def make_report(store: Store, skew: SkewSnapshot | None = None) -> Report:
    """Report of the store; `skew` is that of the store where it was computed before."""
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
        nodes=[node_line(now) for now in nodes],
        jobs=[job_line(job) for job in table.jobs],
        ranks=[rank_line(row) for job in table.jobs for row in job.rows],
        gpus=gpu_lines(store),
        nics=nic_lines(store),
        topology=topology_lines(store),
        captures=capture_lines(store),
        collectives=collectives_line(store),
        clocks=clocks_line(store),
        skew=skew_line(skew or skew_of(store)),
        verdicts=verdicts(store),
        findings=finding_lines(store),
        agent_cost=cost_lines(nodes),
    )


def to_json(report: Report) -> bytes:
    """The report as indented JSON with a newline at its end."""
    return pretty(report).encode() + b"\n"


def exit_code(report: Report, fail_on: Sequence[str] = ("error",)) -> int:
    """The exit code of a headless command: 4 nothing reachable, 1 a finding that counts, 3 partial, 0 fine.

    `fail_on` is a severity (that or a worse one counts), ids of findings, or both.
    """
    if any(_counts(line, fail_on) for line in report.findings) and any(line.state == "ok" for line in report.nodes):
        return 1
    unseen = any(job.ranks_missing for job in report.jobs) or any(is_partial(line) for line in report.captures)
    return _coverage([line.state for line in report.nodes], unseen)


def coverage_code(store: Store) -> int:
    """The exit code of a command that makes no findings: 4 nothing reachable, 3 some nodes unseen, 0 all seen."""
    return _coverage([now.state.state if now.state else "failed" for now in store.nodes.values()], False)


def _coverage(states: Sequence[str], unseen: bool) -> int:
    if "ok" not in states:
        return 4
    return 3 if unseen or any(state != "ok" for state in states) else 0


def _counts(line: FindingLine, fail_on: Sequence[str]) -> bool:
    if line.cleared_at is not None:
        return False
    thresholds = [RANKING[word] for word in fail_on if word in RANKING]
    return line.id in fail_on or any(RANKING[line.severity] >= threshold for threshold in thresholds)


def unknown_words(fail_on: Sequence[str]) -> list[str]:
    """Words of `--fail-on` that are neither a severity nor a finding id."""
    return [word for word in fail_on if word not in RANKING and word not in IDS]
