"""Collectives in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..analysis.collectives.align import ProcessGroup
from ..analysis.collectives.communication import Communication
from ..analysis.collectives.fault import Fault, MismatchSide
from ..analysis.collectives.performance import Load, SlowLink
from ..analysis.collectives.traffic import TrafficCell
from ..core.store import CaptureNow, Store
from ..monitor.hang import newest_communications
from .nodes import line_of


class MemberLine(msgspec.Struct):
    """One rank in one group: how far it is, by collective sequence numbers."""

    rank: int
    last_entered: int | None  # None: none yet
    waits_in: list[int]


class ProcessGroupLine(msgspec.Struct):
    """One process group in one capture."""

    capture: str
    job: str
    attempt: int
    source: str  # flight recorder, NCCL log
    name: str
    desc: str
    ranks: list[int]
    is_whole: bool  # whether `ranks` are all members
    unseen: list[int]  # members without a record
    members: list[MemberLine]


class FaultLine(msgspec.Struct):
    """A fault in a group, root causes first."""

    capture: str
    job: str
    kind: str  # missing_rank, op_mismatch, shape_dtype_mismatch
    source: str
    group: str
    op: str
    seq: int | None
    ranks: tuple[int, ...]  # missing ranks, or the minority; empty where undecided
    waiting: tuple[int, ...]
    unseen: tuple[int, ...]
    waited_s: float | None
    confidence: str
    follows: bool  # its ranks wait in other groups themselves
    sides: tuple[MismatchSide, ...]
    text: str
    evidence: tuple[str, ...]
    camps: tuple[MismatchSide, ...]  # deprecated: `sides`


class MatrixLine(msgspec.Struct):
    """Rank × rank of one job, without empty cells. `refused` says why there are none."""

    job: str
    ranks: tuple[int, ...]
    cells: tuple[TrafficCell, ...]
    left_out: Mapping[str, int]  # operations that name no pair of ranks, by kind
    refused: str | None


class PatternLine(msgspec.Struct):
    """The communication pattern of one job, or why it is unknown."""

    job: str
    pattern: str | None  # ring, tree, all_to_all, pairwise, butterfly, custom
    refused: str | None


class ImbalanceLine(msgspec.Struct):
    """The load of the ranks, the farthest from the mean first, or why it is unknown."""

    job: str
    ranks: tuple[Load, ...]
    refused: str | None


class SlowLinksLine(msgspec.Struct):
    """Links far below the median, the slowest first, or why that is unknown."""

    job: str
    links: tuple[SlowLink, ...]
    refused: str | None


class StatisticsLine(msgspec.Struct):
    """All operations of one kind in one group."""

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
    red_ops: list[str]
    streams: int | None


class WaitLine(msgspec.Struct):
    """Root causes and cycles of the wait-for graph."""

    job: str
    causes: list[int]  # ranks that others wait for and that wait for no rank
    cycles: list[list[int]]


class TroubleLine(msgspec.Struct):
    """A source that returned no or incomplete data."""

    job: str
    source: str
    rank: int | None
    status: str
    text: str
    try_: str = msgspec.field(name="try")


class CollectivesLine(msgspec.Struct):
    """Collectives of each job in its newest capture that has any; empty without a source."""

    groups: list[ProcessGroupLine]
    faults: list[FaultLine]
    waits: list[WaitLine]
    matrix: list[MatrixLine]
    pattern: list[PatternLine]
    imbalance: list[ImbalanceLine]
    slow_links: list[SlowLinksLine]
    statistics: list[StatisticsLine]
    troubles: list[TroubleLine]


def collectives_line(store: Store, names: Sequence[str] = ()) -> CollectivesLine:
    """The collectives of every job, or of those with one of `names` in their name."""
    every = newest_communications(store).values()
    newest = [(capture, job) for capture, job in every if not names or any(name in job.job for name in names)]
    covered = [job for _, job in newest if job.sources]
    return CollectivesLine(
        groups=[_group(capture, job, group) for capture, job in newest for group in job.groups],
        faults=[_fault(capture, job, fault) for capture, job in newest for fault in job.faults],
        waits=[
            WaitLine(job.job, list(job.graph.causes), [list(cycle) for cycle in job.graph.cycles])
            for _, job in newest
            if job.graph.waits
        ],
        matrix=[line_of(MatrixLine, job.matrix, job=job.job) for job in covered],
        pattern=[line_of(PatternLine, job.pattern, job=job.job) for job in covered],
        imbalance=[ImbalanceLine(job.job, job.imbalance.loads, job.imbalance.refused) for job in covered],
        slow_links=[line_of(SlowLinksLine, job.slow_links, job=job.job) for job in covered],
        statistics=[
            line_of(StatisticsLine, statistic, job=job.job) for _, job in newest for statistic in job.statistics
        ],
        troubles=[line_of(TroubleLine, trouble, job=job.job) for _, job in newest for trouble in job.troubles],
    )


def _group(capture: CaptureNow, job: Communication, group: ProcessGroup) -> ProcessGroupLine:
    members = [
        MemberLine(rank, member.last if member.last >= 0 else None, member.waits_in())
        for rank, member in sorted(group.members.items())
    ]
    return ProcessGroupLine(
        capture=capture.id, job=job.job, attempt=job.attempt, source=group.witness, name=group.name, desc=group.desc,
        ranks=list(group.ranks), is_whole=group.is_whole, unseen=list(group.unseen), members=members,
    )  # fmt: skip


def _fault(capture: CaptureNow, job: Communication, fault: Fault) -> FaultLine:
    own = {"capture": capture.id, "source": fault.witness, "group": fault.title, "camps": fault.sides}
    return line_of(FaultLine, fault, job=job.job, **own)
