"""The whole report and its JSON: a pure fold of the store, so live and replay reports are equal."""

from __future__ import annotations

import msgspec

from ..analysis.hang import Verdict
from ..analysis.skew.findings import SkewSnapshot
from ..core.store import Store
from ..monitor.hang import jobs_of, verdicts
from ..monitor.skew import skew_of
from ..text.format import iso
from ..text.nodeset_fold import natural
from ..text.table import pretty
from .captures import CaptureLine, capture_lines
from .clocks import ClocksLine, clocks_line
from .collectives import CollectivesLine, collectives_line
from .findings import FindingLine, finding_lines
from .jobs import JobLine, RankLine, job_line, rank_line
from .nodes import (
    CostLine,
    GpuLine,
    NicLine,
    NodeLine,
    TopologyLines,
    cost_lines,
    gpu_lines,
    nic_lines,
    node_line,
    topology_lines,
)
from .skew import SkewLine, skew_line

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
