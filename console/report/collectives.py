"""Collectives in a headless run: their part of the report, as JSON."""

from __future__ import annotations

import msgspec

from ..analysis.collectives import Communication, Fault, ProcessGroup
from ..core.store import CaptureNow, Store
from ..monitor.hang import newest_communications


class MemberLine(msgspec.Struct):
    """One rank in one group: how far it is, by collective sequence numbers."""

    rank: int
    last_entered: int | None  # None: none yet
    waits_in: list[int]


class ProcessGroupLine(msgspec.Struct):
    capture: str
    job: str
    attempt: int
    source: str  # flight recorder, NCCL log
    name: str
    desc: str
    ranks: list[int]
    is_whole: bool  # whether `ranks` are all members
    unseen: list[int]  # members of which no record came
    members: list[MemberLine]


class MismatchSideLine(msgspec.Struct):
    what: str
    ranks: list[int]


class FaultLine(msgspec.Struct):
    """Something that is wrong in a group, causes before what follows from them."""

    capture: str
    job: str
    kind: str  # missing_rank, op_mismatch, shape_dtype_mismatch
    source: str
    group: str
    op: str
    seq: int | None
    ranks: list[int]  # who has not come, or the smaller camp; empty where it cannot be told
    waiting: list[int]
    unseen: list[int]
    waited_s: float | None
    confidence: str
    follows: bool  # its ranks wait in other groups themselves
    sides: list[MismatchSideLine]
    text: str
    evidence: list[str]


class CellLine(msgspec.Struct):
    source: int
    destination: int
    count: int
    bytes: int | None
    mean_latency_ms: float | None


class MatrixLine(msgspec.Struct):
    """Rank × rank of one job, without empty cells. `refused` says why there are none."""

    job: str
    ranks: list[int]
    cells: list[CellLine]
    left_out: dict[str, int]  # operations that name no pair of ranks, by kind
    refused: str | None


class PatternLine(msgspec.Struct):
    job: str
    pattern: str | None  # ring, tree, all_to_all, pairwise, butterfly, custom
    refused: str | None


class LoadLine(msgspec.Struct):
    rank: int
    bytes: int
    total_ms: float | None
    deviation: float  # of the mean of all, as a share


class ImbalanceLine(msgspec.Struct):
    job: str
    ranks: list[LoadLine]
    refused: str | None


class LinkLine(msgspec.Struct):
    source: int
    destination: int
    bytes_s: float
    utilisation: float  # bandwidth as a share of the median link's
    measured: int


class SlowLinksLine(msgspec.Struct):
    job: str
    links: list[LinkLine]
    refused: str | None


class StatisticsLine(msgspec.Struct):
    job: str
    group: str
    op: str
    count: int
    pending: int
    bytes: int | None
    measured: int
    mean_ms: float | None
    least_ms: float | None
    most_ms: float | None


class WaitLine(msgspec.Struct):
    job: str
    causes: list[int]  # ranks that others wait for and that wait for nobody
    cycles: list[list[int]]


class TroubleLine(msgspec.Struct):
    """A source that is there and gave nothing, or not all."""

    job: str
    source: str
    rank: int | None
    status: str
    text: str
    try_: str = msgspec.field(name="try")


class CollectivesLine(msgspec.Struct):
    """Of each job what its newest capture with any such records says; all empty where no source was there."""

    groups: list[ProcessGroupLine]
    faults: list[FaultLine]
    waits: list[WaitLine]
    matrix: list[MatrixLine]
    pattern: list[PatternLine]
    imbalance: list[ImbalanceLine]
    slow_links: list[SlowLinksLine]
    statistics: list[StatisticsLine]
    troubles: list[TroubleLine]


def collectives_line(store: Store) -> CollectivesLine:
    """The part of the report about collectives."""
    found = newest_communications(store)
    every = found.values()
    return CollectivesLine(
        groups=[_group(capture, said, group) for capture, said in every for group in said.groups],
        faults=[_fault(capture, said, fault) for capture, said in every for fault in said.faults],
        waits=[
            WaitLine(said.job, list(said.graph.causes), [list(cycle) for cycle in said.graph.cycles])
            for _, said in every
            if said.graph.waits
        ],
        matrix=[_matrix(said) for _, said in every if said.heard],
        pattern=[PatternLine(said.job, said.pattern.pattern, said.pattern.refused) for _, said in every if said.heard],
        imbalance=[
            ImbalanceLine(
                said.job,
                [LoadLine(load.rank, load.bytes, load.total_ms, load.deviation) for load in said.imbalance.loads],
                said.imbalance.refused,
            )
            for _, said in every
            if said.heard
        ],
        slow_links=[
            SlowLinksLine(
                said.job,
                [
                    LinkLine(link.source, link.destination, link.bytes_s, link.utilisation, link.measured)
                    for link in said.slow_links.links
                ],
                said.slow_links.refused,
            )
            for _, said in every
            if said.heard
        ],
        statistics=[
            StatisticsLine(
                said.job,
                statistic.group,
                statistic.op,
                statistic.count,
                statistic.pending,
                statistic.bytes,
                statistic.measured,
                statistic.mean_ms,
                statistic.least_ms,
                statistic.most_ms,
            )
            for _, said in every
            for statistic in said.statistics
        ],
        troubles=[
            TroubleLine(said.job, trouble.source, trouble.rank, trouble.status, trouble.text, trouble.try_)
            for _, said in every
            for trouble in said.troubles
        ],
    )


def _group(capture: CaptureNow, said: Communication, group: ProcessGroup) -> ProcessGroupLine:
    return ProcessGroupLine(
        capture=capture.id,
        job=said.job,
        attempt=said.attempt,
        source=group.witness,
        name=group.name,
        desc=group.desc,
        ranks=list(group.ranks),
        is_whole=group.is_whole,
        unseen=list(group.unseen),
        members=[
            MemberLine(rank, member.last if member.last >= 0 else None, member.waits_in())
            for rank, member in sorted(group.members.items())
        ],
    )


def _fault(capture: CaptureNow, said: Communication, fault: Fault) -> FaultLine:
    return FaultLine(
        capture=capture.id,
        job=said.job,
        kind=fault.kind,
        source=fault.witness,
        group=fault.title,
        op=fault.op,
        seq=fault.seq,
        ranks=list(fault.ranks),
        waiting=list(fault.waiting),
        unseen=list(fault.unseen),
        waited_s=fault.waited_s,
        confidence=fault.confidence,
        follows=fault.follows,
        sides=[MismatchSideLine(side.what, list(side.ranks)) for side in fault.sides],
        text=fault.text,
        evidence=list(fault.evidence),
    )


def _matrix(said: Communication) -> MatrixLine:
    cells = [
        CellLine(cell.source, cell.destination, cell.count, cell.bytes, cell.mean_latency_ms)
        for cell in said.matrix.cells
    ]
    return MatrixLine(said.job, list(said.matrix.ranks), cells, dict(said.matrix.left_out), said.matrix.refused)
