"""Jobs and their ranks as the screen tells them: a row a rank, totals, missing ranks with their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...analysis import jobs as analysis
from ...core.store import ProcessKey
from ...present.spans import Span
from ...present.status import Status, rank_status
from ...records import NodeState, Rank, RankStat
from ...text.cells import clean
from .row import count_spans

#: A row for ever: (job, attempt, rank, node, pid, start ticks); a missing rank has no process.
RankKey = tuple[str, int, int | None, str, int, int]


@dataclass(frozen=True, slots=True)
class RankListRow:
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
        process = (rank.node, rank.pid, rank.start_ticks) if rank else ("", 0, 0)
        return (self.job, self.attempt, self.number, *process)

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
    """One job: its newest attempt, and what is left of older ones."""

    job: str
    world_size: int | None
    found: int
    rows: tuple[RankListRow, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)  # state → ranks of the newest attempt, missing ones included
    missing: tuple[tuple[str, tuple[int | None, ...]], ...] = ()  # (reason, ranks), most ranks first
    conflicts: tuple[str, ...] = ()
    step: int | None = None  # the median of those known
    steps: tuple[tuple[int, int], ...] = ()  # (step, ranks), the front first
    launcher: str = ""

    @property
    def title(self) -> str:
        return clean(self.job)

    @property
    def is_complete(self) -> bool:
        return self.world_size is not None and self.found >= self.world_size


@dataclass(frozen=True)
class JobsSummary:
    """All jobs, in the order of their names."""

    jobs: tuple[JobSummary, ...] = ()
    watched: tuple[str, ...] = ()  # names of the variables that are read of some rank

    @property
    def found(self) -> int:
        return sum(job.found for job in self.jobs)

    @property
    def world_size(self) -> int | None:
        """Ranks that should be there; None where some job does not say."""
        sizes = [job.world_size for job in self.jobs]
        return None if None in sizes else sum(size for size in sizes if size is not None)


Records = Mapping[ProcessKey, tuple[Rank, RankStat | None]]


def fold_jobs(records: Records, nodes: Sequence[NodeState], ages: Mapping[str, str]) -> JobsSummary:
    """Every job of these records. `ages` names the nodes whose data are not fresh, and how old they are."""
    stats = [stat for _, stat in records.values() if stat is not None]
    table = analysis.job_table([rank for rank, _ in records.values()], stats, nodes)
    lost = {node.node for node in nodes if node.state not in ("ok", "removed")}
    names = {name for stat in stats for name in stat.watched or ()}
    return JobsSummary(tuple(_summary(job, records, lost, ages) for job in table.jobs), tuple(sorted(names)))


def _summary(job: analysis.JobRanks, records: Records, lost: set[str], ages: Mapping[str, str]) -> JobSummary:
    rows = [_row(row, records, lost, ages) for row in job.rows]
    shown = {row.number for row in rows if row.attempt == job.attempt}
    rows += [
        RankListRow(job.job, job.attempt, missing.rank, missing.why if missing.why == "exited" else "missing",
                reason=clean(missing.reason))
        for missing in job.ranks_missing
        if missing.rank not in shown
    ]  # fmt: skip
    rows.sort(key=lambda row: (row.number is None, row.number or 0, -row.attempt))
    newest = [row for row in rows if row.attempt == job.attempt]
    steps = Counter(row.stat.step for row in newest if row.stat and row.stat.step is not None)
    return JobSummary(
        job.job, job.world_size, len(job.ranks_found), tuple(rows), dict(Counter(row.state for row in newest)),
        missing=_by_reason(job.ranks_missing), conflicts=tuple(clean(conflict.text) for conflict in job.conflicts),
        step=_median(steps), steps=tuple(sorted(steps.items(), reverse=True)),
        launcher=next((clean(row.rank.launcher) for row in rows if row.rank and row.rank.launcher), ""),
    )  # fmt: skip


def _row(row: analysis.RankSummary, records: Records, lost: set[str], ages: Mapping[str, str]) -> RankListRow:
    """A row with its records; of a node that is not here the last known figures stay, and are drawn as stale."""
    rank, stat = records[row.node, row.pid, row.start_ticks]
    state = row.status if row.status != "present" else "lost" if row.node in lost else row.state
    return RankListRow(
        row.job, row.attempt, row.rank, state, rank, stat if row.status == "present" else None, clean(row.reason or ""),
        ages.get(row.node, ""),
    )  # fmt: skip


def _by_reason(missing: Sequence[analysis.MissingRank]) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    reasons: dict[str, list[int | None]] = {}
    for rank in missing:
        reasons.setdefault(rank.reason, []).append(rank.rank)
    return tuple((reason, tuple(ranks)) for reason, ranks in sorted(reasons.items(), key=lambda item: -len(item[1])))


def _median(steps: Mapping[int, int]) -> int | None:
    """The step that the middle one of the ranks is at (the lower of two)."""
    half = (sum(steps.values()) + 1) // 2
    for step in sorted(steps):
        half -= steps[step]
        if half <= 0:
            return step
    return None


def state_spans(counts: Mapping[str, int]) -> list[Span]:
    """`● 511 running  ✖ 1 stuck`: states that occur, the good one first, then the worst."""
    return count_spans({(rank_status(state), state): count for state, count in counts.items()})
