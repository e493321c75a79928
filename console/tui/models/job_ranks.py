"""Jobs and their ranks: one row per rank, totals, missing ranks with their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from ...analysis import jobs as analysis
from ...analysis.late_rank import StepLength
from ...analysis.rank_progress import RankProgress, shown_state
from ...analysis.stalls import JobKey
from ...core.store import ProcessKey
from ...present.spans import Span, Status, rank_status
from ...records import NodeState, Rank, RankStat
from ...text.cells import clean
from .rows import PlainRow, count_spans

#: Identity of a row: (job, attempt, rank, node, pid, start ticks); a missing rank has no process.
RankKey = tuple[str, int, int | None, str, int, int]


@dataclass(frozen=True, slots=True)
class RankListRow(PlainRow):
    """One rank, discovered or missing. Values are read from its records when the row is drawn."""

    job: str
    attempt: int
    number: int | None
    state: str
    rank: Rank | None = None
    stat: RankStat | None = None
    reason: str = ""  # why it is missing or not readable
    silent: str = ""  # age of its node's data unless fresh: "12 s"
    progress: RankProgress | None = None  # as of the verdict on its job; `state` is then that of the progress

    @property
    def key(self) -> RankKey:
        """Identity of the row."""
        rank = self.rank
        process = (rank.node, rank.pid, rank.start_ticks) if rank else ("", 0, 0)
        return (self.job, self.attempt, self.number, *process)

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with every value that the row shows."""
        rank, stat = self.rank, self.stat
        return (
            self.number, self.state, self.reason, self.silent,
            rank and (rank.agent, rank.seq), stat and (stat.agent, stat.seq),
        )  # fmt: skip

    @property
    def status(self) -> Status:
        """Status of the state; stale without fresh data."""
        return "stale" if self.silent else rank_status(self.state)

    @property
    def note(self) -> Span | None:
        """The reason, in place of values."""
        return Span(self.reason, self.status) if self.reason and self.stat is None else None


def rank_values(row: RankListRow) -> dict[str, object]:
    """What commands of the user may name of a rank."""
    rank = row.rank
    process = {} if rank is None else {"node": rank.node, "pid": rank.pid, "gpu": rank.gpu or None}
    return {"rank": row.number, "job": row.job, **process}


class JobSummary(msgspec.Struct, frozen=True):
    """One job: its newest attempt, and remaining ranks of older ones."""

    job: str
    world_size: int | None
    discovered: int
    rows: tuple[RankListRow, ...] = ()
    counts: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # state → ranks of the newest attempt, missing included
    missing: tuple[tuple[str, tuple[int | None, ...]], ...] = ()  # (reason, ranks), most ranks first
    conflicts: tuple[str, ...] = ()
    step: int | None = None  # median of the known ones
    steps: tuple[tuple[int, int], ...] = ()  # (step, ranks), highest first
    launcher: str = ""
    step_length: StepLength | None = None

    @property
    def title(self) -> str:
        """Name of the job, sanitised."""
        return clean(self.job)

    @property
    def is_complete(self) -> bool:
        """Whether every rank was discovered."""
        return self.world_size is not None and self.discovered >= self.world_size


class JobsSummary(msgspec.Struct, frozen=True):
    """All jobs, by name."""

    jobs: tuple[JobSummary, ...] = ()
    watched: tuple[str, ...] = ()  # names of watched variables

    @property
    def discovered(self) -> int:
        """Discovered ranks of all jobs."""
        return sum(job.discovered for job in self.jobs)

    @property
    def world_size(self) -> int | None:
        """Expected ranks of all jobs; None if some job does not report its world size."""
        sizes = [job.world_size for job in self.jobs]
        return None if None in sizes else sum(size for size in sizes if size is not None)


Records = Mapping[ProcessKey, tuple[Rank, RankStat | None]]
Progress = Mapping[ProcessKey, RankProgress]


def fold_jobs(
    records: Records,
    nodes: Sequence[NodeState],
    ages: Mapping[str, str],
    progress: Progress = MappingProxyType({}),
    steps: Mapping[JobKey, StepLength] = MappingProxyType({}),
) -> JobsSummary:
    """The jobs of these records, whose steps take so long.

    `ages` are those of nodes without fresh data, `progress` that of ranks by process.
    """
    stats = [stat for _, stat in records.values() if stat is not None]
    table = analysis.job_table([rank for rank, _ in records.values()], stats, nodes)
    lost = {node.node for node in nodes if node.state not in ("ok", "removed")}
    names = {name for stat in stats for name in stat.watched or ()}
    return JobsSummary(
        tuple(_summary(job, records, lost, ages, progress, steps) for job in table.jobs), tuple(sorted(names))
    )


def _summary(
    job: analysis.JobRanks,
    records: Records,
    lost: set[str],
    ages: Mapping[str, str],
    progress: Progress,
    lengths: Mapping[JobKey, StepLength],
) -> JobSummary:
    rows = [_row(row, records, lost, ages, progress) for row in job.rows]
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
        step_length=lengths.get((job.job, job.attempt)),
    )  # fmt: skip


def _row(
    row: analysis.RankSummary, records: Records, lost: set[str], ages: Mapping[str, str], progress: Progress
) -> RankListRow:
    """A row with its records; of a lost node the last ones, drawn as stale."""
    key = (row.node, row.pid, row.start_ticks)
    rank, stat = records[key]
    entry = progress.get(key) if row.status == "present" and row.node not in lost else None
    state: str = row.status if row.status != "present" else "lost" if row.node in lost else row.state
    if entry is not None:
        state = shown_state(state, entry.state)
    return RankListRow(
        row.job, row.attempt, row.rank, state, rank, stat if row.status == "present" else None, clean(row.reason or ""),
        ages.get(row.node, ""), entry,
    )  # fmt: skip


def _by_reason(missing: Sequence[analysis.MissingRank]) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    reasons: dict[str, list[int | None]] = {}
    for rank in missing:
        reasons.setdefault(rank.reason, []).append(rank.rank)
    return tuple((reason, tuple(ranks)) for reason, ranks in sorted(reasons.items(), key=lambda item: -len(item[1])))


def _median(steps: Mapping[int, int]) -> int | None:
    """Median step of the ranks, the lower of two."""
    half = (sum(steps.values()) + 1) // 2
    for step in sorted(steps):
        half -= steps[step]
        if half <= 0:
            return step
    return None


def state_spans(counts: Mapping[str, int]) -> list[Span]:
    """`● 511 running  ✖ 1 stopped`: states that occur, ok first, then worst first."""
    return count_spans({(rank_status(state), state): count for state, count in counts.items()})
