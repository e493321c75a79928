"""Jobs and their ranks as the screen tells them: a row a rank, totals, missing ranks with their reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...records import Rank, RankStat
from ..status import GLYPHS, Status, rank_status
from ..text import clean
from .nodes import NodeSummary
from .spans import Span

#: A rank for ever: (job, attempt, rank, node, pid); a missing rank has no node and no pid.
RankKey = tuple[str, int, int | None, str, int]


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank, found or missing. Figures are read from its records when its row is drawn, not before."""

    job: str
    attempt: int
    number: int | None
    state: str
    rank: Rank | None = None
    stat: RankStat | None = None
    reason: str = ""  # why it is missing, or what keeps it from being read
    silent: str = ""  # how old its node's data are, where they are not fresh: "12 s"

    @property
    def key(self) -> RankKey:
        rank = self.rank
        return self.job, self.attempt, self.number, rank.node if rank else "", rank.pid if rank else 0

    @property
    def version(self) -> tuple[object, ...]:
        rank, stat = self.rank, self.stat
        return (
            self.number, self.state, self.reason, self.silent,
            rank and (rank.agent, rank.seq), stat and (stat.agent, stat.seq),
        )  # fmt: skip

    @property
    def status(self) -> Status:
        return "stale" if self.silent else rank_status(self.state)

    @property
    def banner(self) -> tuple[Span, ...] | None:
        return None

    @property
    def note(self) -> Span | None:
        return Span(self.reason, self.status) if self.reason and self.stat is None else None


@dataclass(frozen=True)
class JobSummary:
    """One job (of its newest attempt, and what is left of older ones)."""

    job: str
    world_size: int | None
    found: int
    rows: tuple[RankRow, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)  # state → ranks, missing ones included
    missing: tuple[tuple[str, tuple[int | None, ...]], ...] = ()  # (reason, ranks), most ranks first
    step: int | None = None  # the median of those known
    steps: tuple[tuple[int, int], ...] = ()  # (step, ranks), the front first
    launcher: str = ""

    @property
    def title(self) -> str:
        return clean(self.job)


@dataclass(frozen=True)
class Jobs:
    """All jobs, in the order of their names."""

    jobs: tuple[JobSummary, ...] = ()

    @property
    def found(self) -> int:
        return sum(job.found for job in self.jobs)

    @property
    def world_size(self) -> int | None:
        """Ranks that should be there; None where some job does not say."""
        sizes = [job.world_size for job in self.jobs]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def fold_jobs(ranks: Sequence[tuple[Rank, RankStat | None]], nodes: Mapping[str, NodeSummary], ages: Mapping[str, str]) -> Jobs:
    """Every job on these nodes. `ages` names the nodes whose data are not fresh, and how old they are."""
    by_job: dict[str, list[RankRow]] = defaultdict(list)
    for rank, stat in ranks:
        by_job[rank.job].append(_row(rank, stat, ages))
    return Jobs(tuple(_job(name, rows, nodes) for name, rows in sorted(by_job.items())))


def _row(rank: Rank, stat: RankStat | None, ages: Mapping[str, str]) -> RankRow:
    state = rank.status if rank.status != "present" else stat.state if stat else "unknown"
    return RankRow(
        rank.job, rank.attempt, rank.rank, state, rank, stat if rank.status == "present" else None,
        clean(rank.reason or ""), ages.get(rank.node, ""),
    )  # fmt: skip


def _job(name: str, rows: list[RankRow], nodes: Mapping[str, NodeSummary]) -> JobSummary:
    world = max((row.rank.world_size or 0 for row in rows if row.rank), default=0) or None
    there = {row.number for row in rows}
    lost = sorted(node.name for node in nodes.values() if node.status == "failed")
    reason = f"not found; unreachable: {', '.join(lost[:3])}" if lost else "not found on any node"
    absent = [RankRow(name, 0, number, "missing", reason=reason) for number in range(world or 0) if number not in there]
    rows = sorted([*rows, *absent], key=lambda row: (row.number is None, row.number or 0, row.attempt))
    found = sum(row.state != "missing" for row in rows)
    return JobSummary(
        name, world, found, tuple(rows), dict(Counter(row.state for row in rows)),
        missing=((reason, tuple(row.number for row in absent)),) if absent else (),
        launcher=next((clean(row.rank.launcher) for row in rows if row.rank and row.rank.launcher), ""),
        **_steps(rows),
    )  # fmt: skip


def _steps(rows: Sequence[RankRow]) -> dict[str, object]:
    steps = sorted(row.stat.step for row in rows if row.stat and row.stat.step is not None)
    if not steps:
        return {}
    return {"step": steps[len(steps) // 2], "steps": tuple(sorted(Counter(steps).items(), reverse=True))}


def state_spans(counts: Mapping[str, int]) -> list[Span]:
    """`● 511 moving  ✖ 1 stuck`: states that occur, the good one first, then the worst."""
    order = sorted(counts, key=lambda state: (rank_status(state) != "ok", _WEIGHT[rank_status(state)], state))
    spans: list[Span] = []
    for state in order:
        if counts[state]:
            status = rank_status(state)
            if spans:
                spans.append(Span("  "))
            spans += [Span(f"{GLYPHS[status]} {counts[state]} ", status), Span(state.replace("_", " "), "muted")]
    return spans


_WEIGHT: dict[Status, int] = {"failed": 0, "warning": 1, "stale": 2, "unknown": 3, "ok": 4}
