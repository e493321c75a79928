"""Collectives of one job in one capture, and the evidence they give a hang diagnosis, the cause first.

Only proven absences are evidence: a rank has waited long enough, and sequence numbers prove which rank is missing.
Launch counts (RAS, NCCL's log) are not: a rank whose GPU waits launches less without being the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ...records import Collective, PgStatus, Rank
from ..hang.verdict import Absence, Circle, CollectiveEvidence, Mismatch
from ..jobs import MOST_MISSING
from .align import WITNESSES, JobKey, ProcessGroup, groups_of, with_ranks
from .fault import Fault, absence, count_faults, mismatches, unlaunched
from .order import odd_ranks
from .performance import Imbalance, SlowLinks, Statistics, imbalance_of, slow_links_of, statistics_of
from .traffic import PatternFound, TrafficMatrix, matrix_of, pattern_of
from .wait_graph import WaitGraph, ordered, wait_graph

#: Seconds. Shorter waits are not faults: ranks of a running job differ by as much.
LEAST_WAIT_S: Final = 5.0


class Trouble(msgspec.Struct, frozen=True):
    """A source that returned no or incomplete data: the reason, and what to try."""

    source: str
    rank: int | None
    status: str
    text: str
    try_: str


class Communication(msgspec.Struct, frozen=True):
    """One job in one capture. Without any source everything is empty."""

    job: str
    attempt: int
    sources: tuple[tuple[str, tuple[int, ...]], ...]  # source, and the ranks it covers
    groups: tuple[ProcessGroup, ...]
    faults: tuple[Fault, ...]  # root causes first
    graph: WaitGraph
    matrix: TrafficMatrix
    pattern: PatternFound
    imbalance: Imbalance
    slow_links: SlowLinks
    statistics: tuple[Statistics, ...]
    troubles: tuple[Trouble, ...]
    circles: tuple[Circle, ...] = ()


def jobs_in(collectives: Iterable[Collective], statuses: Iterable[PgStatus]) -> list[JobKey]:
    """The jobs that any source covers."""
    records: list[Collective | PgStatus] = [*collectives, *statuses]
    return sorted({(record.job, record.attempt) for record in records})


def communication(
    collectives: Sequence[Collective], statuses: Sequence[PgStatus], job: JobKey, ranks: Sequence[Rank] = (),
    least_wait_s: float = LEAST_WAIT_S,
) -> Communication:  # fmt: skip
    """The collectives of one job in one capture. `ranks` are the current records of its processes."""
    own = [rank for rank in ranks if (rank.job, rank.attempt) == job]
    world_size = max(
        (rank.world_size for rank in own if rank.world_size and rank.world_size <= MOST_MISSING), default=None
    )
    entries = [collective for collective in collectives if (collective.job, collective.attempt) == job]
    lines = with_ranks([status for status in statuses if (status.job, status.attempt) == job], own)
    groups = groups_of(entries, lines, world_size)
    faults = ordered([*faults_of(groups, least_wait_s), *count_faults(lines)], groups)
    seen = {rank for group in groups for rank in group.ranks}
    matrix = matrix_of(entries, groups, sorted(seen | set(range(world_size or 0))))
    titles = {(group.witness, group.name): group.title for group in groups}
    graph = wait_graph(faults, entries, groups)
    return Communication(
        job=job[0], attempt=job[1], sources=_sources(entries, lines), groups=tuple(groups), faults=tuple(faults),
        graph=graph, circles=tuple(_circles(graph, entries)), matrix=matrix, pattern=pattern_of(matrix),
        imbalance=imbalance_of(entries, groups), slow_links=slow_links_of(entries, groups, matrix),
        statistics=tuple(statistics_of(entries, titles)), troubles=tuple(_troubles(lines)),
    )  # fmt: skip


def _circles(graph: WaitGraph, entries: Sequence[Collective]) -> Iterator[Circle]:
    """The circular waits over collectives; those over sends and receives alone are seen in the stacks."""
    for cycle in graph.cycles:
        following = dict(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        waits = {wait.rank: wait for wait in graph.waits if following.get(wait.rank) == wait.on}
        if any(not wait.is_p2p for wait in waits.values()):
            texts = tuple(f"rank {rank} waits for rank {waits[rank].on} in {waits[rank].why}" for rank in cycle)
            yield Circle(cycle, odd_ranks(cycle, entries), texts)


def faults_of(groups: Iterable[ProcessGroup], least_wait_s: float = LEAST_WAIT_S) -> list[Fault]:
    """All faults in these groups, mismatches before missing ranks; `wait_graph.ordered` sorts causes first."""
    faults = []
    for group in groups:
        faults += mismatches(group)
        missing = unlaunched(group) if group.witness == "NCCL log" else absence(group, least_wait_s)
        if missing is not None:
            faults.append(missing)
    return faults


def _sources(entries: Iterable[Collective], lines: Iterable[PgStatus]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    covered: dict[str, set[int]] = {}
    records: list[Collective | PgStatus] = [*entries, *(line for line in lines if line.status == "ok")]
    for record in records:
        ranks = covered.setdefault(WITNESSES[record.source], set())
        if record.rank is not None:
            ranks.add(record.rank)
    return tuple((witness, tuple(sorted(ranks))) for witness, ranks in sorted(covered.items()))


def _troubles(lines: Iterable[PgStatus]) -> list[Trouble]:
    troubles = {
        Trouble(line.source, None if line.source == "ras" else line.rank, line.status, line.reason, line.try_)
        for line in lines if line.reason
    }  # fmt: skip
    return sorted(
        troubles, key=lambda trouble: (trouble.source, -1 if trouble.rank is None else trouble.rank, trouble.text)
    )


def evidence_of(capture: Communication) -> tuple[CollectiveEvidence, ...]:
    """The evidence of each source that covers any rank."""
    return tuple(
        CollectiveEvidence(
            source=witness,
            complete=ranks,
            absences=tuple(_absence(fault) for fault in capture.faults if fault.witness == witness and _proves(fault)),
            mismatches=tuple(
                Mismatch(fault.title, fault.seq, tuple((side.what, side.ranks) for side in fault.sides))
                for fault in capture.faults if fault.witness == witness and _differs(fault)
            ),
            circles=capture.circles if witness == "flight recorder" else (),
        )
        for witness, ranks in capture.sources if witness != "NCCL Inspector"
    )  # fmt: skip


def _proves(fault: Fault) -> bool:
    """Whether an absence is proven and does not follow from another one."""
    proven = fault.kind == "missing_rank" and fault.confidence in ("certain", "likely")
    return proven and fault.seq is not None and not fault.follows


def _differs(fault: Fault) -> bool:
    """Whether the sides are complete: else the minority may be the majority."""
    is_even = len({len(side.ranks) for side in fault.sides}) == 1
    return len(fault.sides) > 1 and (bool(fault.ranks) or is_even)


def _absence(fault: Fault) -> Absence:
    held = {rank for rank, _ in fault.held}
    ranks = tuple(rank for rank in fault.ranks if rank not in held)
    return Absence(fault.title, fault.op, fault.seq, ranks, fault.waiting)
