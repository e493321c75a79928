"""All that one capture says of one job's collectives, in one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...records import Collective, PgStatus, Rank
from ..jobs import MOST_MISSING
from .align import WITNESSES, ProcessGroup, groups_of, with_ranks
from .detect import LEAST_WAIT_S, faults_of
from .fault import Fault
from .performance import Imbalance, SlowLinks, Statistics, imbalance_of, slow_links_of, statistics_of
from .ras import count_faults
from .traffic import PatternFound, TrafficMatrix, matrix_of, pattern_of
from .wait_graph import WaitGraph, ordered, wait_graph

#: (job, attempt)
JobKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A source that is there and gave nothing, or not all: the reason, and what to try."""

    source: str
    rank: int | None
    status: str
    text: str
    try_: str


@dataclass(frozen=True, slots=True)
class Communication:
    """One job in one capture. Without any source `heard` is empty, and so is everything else."""

    job: str
    attempt: int
    heard: tuple[tuple[str, tuple[int, ...]], ...]  # witness, and the ranks it has spoken for
    groups: tuple[ProcessGroup, ...]
    faults: tuple[Fault, ...]  # causes first, then what follows from them
    graph: WaitGraph
    matrix: TrafficMatrix
    pattern: PatternFound
    imbalance: Imbalance
    slow_links: SlowLinks
    statistics: tuple[Statistics, ...]
    troubles: tuple[Trouble, ...]


def jobs_in(collectives: Iterable[Collective], statuses: Iterable[PgStatus]) -> list[JobKey]:
    """The jobs that any source has said something of."""
    said: list[Collective | PgStatus] = [*collectives, *statuses]
    return sorted({(one.job, one.attempt) for one in said})


def communication(
    collectives: Sequence[Collective], statuses: Sequence[PgStatus], job: JobKey, ranks: Sequence[Rank] = (),
    least_wait_s: float = LEAST_WAIT_S,
) -> Communication:  # fmt: skip
    """What one capture says of one job. `ranks` are the current records of its processes."""
    own = [one for one in ranks if (one.job, one.attempt) == job]
    world_size = max((one.world_size for one in own if one.world_size and one.world_size <= MOST_MISSING), default=None)
    entries = [collective for collective in collectives if (collective.job, collective.attempt) == job]
    lines = with_ranks([status for status in statuses if (status.job, status.attempt) == job], own)
    groups = groups_of(entries, lines, world_size)
    faults = ordered([*faults_of(groups, least_wait_s), *count_faults(lines)], groups)
    seen = {rank for group in groups for rank in group.ranks}
    matrix = matrix_of(entries, groups, sorted(seen | set(range(world_size or 0))))
    titles = {(group.witness, group.name): group.title for group in groups}
    return Communication(
        job=job[0], attempt=job[1], heard=_heard(entries, lines), groups=tuple(groups), faults=tuple(faults),
        graph=wait_graph(faults, entries, groups), matrix=matrix, pattern=pattern_of(matrix),
        imbalance=imbalance_of(entries, groups), slow_links=slow_links_of(entries, groups, matrix),
        statistics=tuple(statistics_of(entries, titles)), troubles=tuple(_troubles(lines)),
    )  # fmt: skip


def _heard(entries: Iterable[Collective], lines: Iterable[PgStatus]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, set[int]] = {}
    said: list[Collective | PgStatus] = [*entries, *(line for line in lines if line.status == "ok")]
    for one in said:
        ranks = found.setdefault(WITNESSES[one.source], set())
        if one.rank is not None:
            ranks.add(one.rank)
    return tuple((witness, tuple(sorted(ranks))) for witness, ranks in sorted(found.items()))


def _troubles(lines: Iterable[PgStatus]) -> list[Trouble]:
    found = {
        Trouble(line.source, None if line.source == "ras" else line.rank, line.status, line.reason, line.try_)
        for line in lines if line.reason
    }  # fmt: skip
    return sorted(found, key=lambda one: (one.source, -1 if one.rank is None else one.rank, one.text))
