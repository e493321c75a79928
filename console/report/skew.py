"""Clocks and skew in the report: clock lines and edges, late ranks, sync points, shares."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..analysis.skew.findings import SkewSnapshot
from ..analysis.skew.lateness import JobSkew, Lateness, RankSkew
from ..core.store import Store
from ..monitor.clock_jsonl import ClockNodeLine, ClockWindowLine, node_line, window_line
from ..text.nodeset_fold import natural
from .nodes import line_of

#: Latest sync points in a report.
MAX_SYNC_POINTS = 200


class RankSkewLine(msgspec.Struct):
    """One rank over all analysed sync points; lateness is after the first arrival."""

    job: str
    attempt: int
    rank: int
    node: str
    sync_points: int
    resolved: int
    last: int
    share_last: float | None
    chance: float | None
    median_ns: int
    p99_ns: int
    bound_ns: int
    behind_ns: int | None
    behind_bound_ns: int | None
    caused_gpu_s: float
    waited_gpu_s: float
    trend_ns: int | None
    is_resolved: bool
    meetings: int = 0  # deprecated: `sync_points`


class ShareLine(msgspec.Struct):
    """Ranks that share a node or a group; `of` is `node` or `group`."""

    job: str
    attempt: int
    of: str
    name: str
    ranks: int
    last: int
    caused_gpu_s: float


class SyncPointLine(msgspec.Struct):
    """One collective and its last ranks; none where the difference is within the clock error."""

    job: str
    attempt: int
    group: str
    op: str
    seq: int
    last: list[int]
    behind_ns: int
    bound_ns: int


class UnresolvedLine(msgspec.Struct):
    """Sync points within the clock error, and those that were not analysed."""

    job: str
    attempt: int
    analysed: int
    unresolved: int
    incomplete: int
    judged: int  # deprecated: `analysed`


class ViolationLine(msgspec.Struct):
    """A collective that ended before it began, beyond the bounds: a clock is wrong."""

    sync_point: str
    left_rank: int
    left_node: str
    entered_rank: int
    entered_node: str
    early_ns: int
    meeting: str  # deprecated: `sync_point`


class SkewLine(msgspec.Struct):
    """Late ranks. `culprits` are last significantly more often than their peers, the most expensive first."""

    ranks: list[RankSkewLine]
    culprits: list[RankSkewLine]
    unresolved: list[UnresolvedLine]
    shares: list[ShareLine]
    sync_points: list[SyncPointLine]  # the latest
    steps: list[RankSkewLine]
    steps_by: str | None  # source of the steps; None without steps
    captures: list[RankSkewLine]
    violations: list[ViolationLine]
    meetings: list[SyncPointLine]  # deprecated: `sync_points`


def skew_line(skew: SkewSnapshot) -> SkewLine:
    """Skew in the report."""
    analysed = [lateness for job in skew.collectives for lateness in job.analysed]
    sync_points = [_sync_point(lateness) for lateness in analysed[-MAX_SYNC_POINTS:]]
    return SkewLine(
        ranks=_ranks(skew.collectives),
        culprits=_rank_lines([rank for job in skew.collectives for rank in job.culprits]),
        unresolved=[
            UnresolvedLine(
                job.job, job.attempt, len(job.analysed), job.unresolved, job.incomplete, judged=len(job.analysed)
            )
            for job in skew.collectives
        ],
        shares=[
            ShareLine(job.job, job.attempt, of, share.name, share.ranks, share.last, share.caused_gpu_s)
            for job in skew.collectives
            for of, shares in (("node", job.by_node), ("group", job.by_group))
            for share in shares
        ],
        sync_points=sync_points,
        meetings=sync_points,
        steps=_ranks(skew.steps),
        steps_by=skew.steps_by,
        captures=_ranks(skew.captures),
        violations=[
            ViolationLine(
                sync_point=violation.sync_point.title,
                meeting=violation.sync_point.title,
                left_rank=violation.left.rank,
                left_node=violation.left.node,
                entered_rank=violation.entered.rank,
                entered_node=violation.entered.node,
                early_ns=violation.early_ns,
            )
            for violation in skew.violations
        ],
    )


def _ranks(jobs: Iterable[JobSkew]) -> list[RankSkewLine]:
    return _rank_lines([rank for job in jobs for rank in job.ranks])


def _rank_lines(ranks: list[RankSkew]) -> list[RankSkewLine]:
    lines = msgspec.convert(ranks, list[RankSkewLine], from_attributes=True)
    for line in lines:
        line.meetings = line.sync_points
    return lines


def _sync_point(lateness: Lateness) -> SyncPointLine:
    point = lateness.sync_point
    return SyncPointLine(
        job=point.job,
        attempt=point.attempt,
        group=point.group,
        op=point.name,
        seq=point.number,
        last=list(lateness.last),
        behind_ns=lateness.behind_ns,
        bound_ns=lateness.bound_ns,
    )


class ServiceLine(msgspec.Struct):
    """The time service of a node (chrony, ntpd, ptp4l); see `clock_source`."""

    node: str
    daemon: str | None
    synced: bool | None
    offset_ns: int | None
    bound_ns: int | None
    source: str | None
    stratum: int | None
    text: str


class ProbeCostLine(msgspec.Struct):
    """The latest probing cost of a node, in addition to its agent; see `clock_cost`."""

    node: str
    cpu_pct: float
    tx_packets_s: float
    tx_bytes_s: float
    records_bytes_s: float


class GpuTimerLine(msgspec.Struct):
    """The latest reading of a GPU timer, with `[clock] gpu_clock`; see `gpu_clock`."""

    node: str
    index: int
    uuid: str | None
    ahead_ns: int | None
    bound_ns: int | None
    step_ns: int | None
    drift_ppm: float | None
    error: str | None
    simulated: bool


class ClocksLine(msgspec.Struct):
    """The latest window: all nodes on the time line of `reference`. Without a window everything is empty."""

    reference: str | None
    nodes: list[ClockNodeLine]
    edges: list[ClockWindowLine]
    services: list[ServiceLine]
    cost: list[ProbeCostLine]
    gpus: list[GpuTimerLine]


def clocks_line(store: Store) -> ClocksLine:
    """The clocks of the store, as of now."""
    book = store.clocks
    nodes = [node_line(kept[-1]) for kept in book.nodes.values()]
    edges = [window_line(kept[-1]) for kept in book.windows.values()]
    gpus = sorted(book.gpus.values(), key=lambda gpu: (natural(gpu.node), gpu.index))
    newest = max((line.window_id for line in nodes), default=0)
    return ClocksLine(
        reference=next((line.reference for line in nodes if line.window_id == newest), None),
        nodes=sorted(nodes, key=lambda line: natural(line.node)),
        edges=sorted(edges, key=lambda line: (natural(line.src), natural(line.dst))),
        services=[line_of(ServiceLine, book.sources[node]) for node in sorted(book.sources, key=natural)],
        cost=[line_of(ProbeCostLine, book.costs[node]) for node in sorted(book.costs, key=natural)],
        gpus=[line_of(GpuTimerLine, gpu) for gpu in gpus],
    )
