"""The rows of the Ranks view: a row a rank, in groups; what each column says and how it sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ....present.spans import Span
from ....present.status import BY_WEIGHT, GLYPHS, rank_status, state_word
from ....records import Watched
from ....records.metrics import RANK as METRICS
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.grouping import NONE, GroupHeader, Grouping, grouped
from ...models.heat_map import GpuIndex
from ...models.job_ranks import JobsSummary, JobSummary, RankListRow, state_spans
from ...models.list_kind import (
    DEFAULT_ARRANGEMENT,
    Arrangement,
    ColumnField,
    ListKind,
    column_field,
    metric_columns,
    text_or_unknown,
)
from ...models.node_summary import FleetSummary
from ...models.row import RowState
from ...models.row_context import RowContext, RowInContext
from ...models.steady_order import SteadyOrder
from .filter import RANKS

Row = GroupHeader | RankListRow


def _style(row: RankListRow, text: str) -> str:
    """Figures of a silent node are drawn as stale."""
    if row.silent:
        return row.status
    return "muted" if text == format.UNKNOWN else "text"


def _state_text(row: RankListRow) -> str:
    return f"{GLYPHS[row.status]} {state_word(row.state)}" + (f" {row.silent}" if row.silent else "")


def _severity(state: str) -> tuple[int, str]:
    return BY_WEIGHT.index(rank_status(state)), state


def _of_rank(name: str) -> Callable[[RankListRow], Any]:
    return lambda row: getattr(row.rank, name) if row.rank else None


def _of_stat(name: str) -> Callable[[RankListRow], Any]:
    return lambda row: getattr(row.stat, name) if row.stat else None


def _wchan(value: str | None) -> str:
    """The kernel writes 0 where the process sleeps in no kernel function."""
    return format.UNKNOWN if not value or value == "0" else clean(value)


def _gpu_text(value: str | None) -> str:
    """An index as it is; of a uuid what tells it from its neighbours."""
    if not value:
        return format.UNKNOWN
    return clean(value) if len(value) <= 4 else clean(value).removeprefix("GPU-")[:8]


FIELDS: dict[str, ColumnField[RankListRow]] = {
    column.key: column
    for column in (
        column_field("rank", "rank", lambda row: row.number, format.integer, _style),
        ColumnField("state", "state", _state_text, lambda row: _severity(row.state), lambda row, _: row.status),
        column_field("node", "node", _of_rank("node"), text_or_unknown, _style, natural),
        column_field("local", "local rank", _of_rank("local_rank"), format.integer, _style),
        column_field("gpu", "gpu", _of_rank("gpu"), _gpu_text, _style, natural),
        column_field("pid", "pid", _of_rank("pid"), format.integer, _style),
        *metric_columns(METRICS, lambda metric, row: metric.read(row.stat), _style),
        column_field("wchan", "wchan", _of_stat("wchan"), _wchan, _style),
        column_field("attempt", "attempt", lambda row: row.attempt if row.rank else None, format.integer, _style),
        column_field("source", "source", _of_rank("source"), text_or_unknown, _style),
        column_field("job", "job", lambda row: row.job, text_or_unknown, _style),
    )
}


def watched_field(name: str) -> ColumnField[RankListRow]:
    """The field of a watched variable; numbers sort before texts."""

    def read(row: RankListRow) -> Watched | None:
        return row.stat.watched.get(name) if row.stat and row.stat.watched else None

    def order(value: Watched) -> Any:
        return (True, 0, value) if isinstance(value, str) else (False, value, "")

    return column_field(f"watched:{name}", clean(name), read, format.value, _style, order)


def _node(entry: RowInContext[RankListRow]) -> str | None:
    return entry.row.rank.node if entry.row.rank else None


#: What ranks can be grouped by; jobs are never mixed, whichever it is.
GROUPINGS: Final[tuple[Grouping[RankListRow], ...]] = (
    Grouping("job", lambda entry: entry.row.job),
    Grouping("node", _node),
    Grouping("state", lambda entry: entry.row.state, _severity, is_state=True),
    Grouping("class", lambda entry: entry.context.class_of(_node(entry))),
    Grouping("tag", lambda entry: entry.context.all_tags(_node(entry))),
    NONE,
)


def _row_state(row: RankListRow) -> RowState:
    return rank_status(row.state), row.state


def _object(row: RankListRow) -> dict[str, Any]:
    """What the screen makes of it, and its records as they came, in their own units."""
    return {
        "job": row.job, "attempt": row.attempt, "rank": row.number, "state": row.state,
        "reason": row.reason or None, "silent": row.silent or None,
        "record": row.rank, "stat": row.stat,
    }  # fmt: skip


KIND: Final[ListKind[RankListRow]] = ListKind(
    "rank", "rank", FIELDS, RANKS, GROUPINGS, _row_state, _object, row_note=lambda row: row.reason,
)  # fmt: skip
_NOWHERE: Final = RowContext(FleetSummary(), {}, GpuIndex(), JobsSummary())


def rank_rows(
    jobs: JobsSummary, arrangement: Arrangement = DEFAULT_ARRANGEMENT, *, context: RowContext = _NOWHERE,
    passes: Callable[[RankListRow], bool] | None = None, steady: SteadyOrder[RankListRow] | None = None,
    kind: ListKind[RankListRow] = KIND,
) -> Sequence[Row]:  # fmt: skip
    """All rows that pass, in groups: jobs are never mixed, and a rank without that figure stands last in its group.

    `steady` remembers the order from one call to the next, so that jitter moves no row.
    """
    passing = [row for job in jobs.jobs for row in job.rows if passes is None or passes(row)]
    sort = arrangement.sort if arrangement.sort in kind.fields else kind.sort
    if sort != kind.sort or arrangement.reverse:  # they come in the order of their numbers
        steady = steady or SteadyOrder(lambda: 0.0)
        passing = steady.sorted(passing, kind.fields[sort].order, kind.fields[sort].noise, arrangement.reverse)
    of_job: dict[str, list[RankListRow]] = {job.job: [] for job in jobs.jobs}
    for row in passing:
        of_job[row.job].append(row)
    by = kind.grouping(arrangement.group)
    rows: list[Row] = []
    for job in jobs.jobs:
        mine = of_job[job.job]
        if not mine and passes is not None:
            continue
        if by.name == "job":
            rows += [_job_head(job, len(mine) if passes is not None else None), *mine]
        else:
            title = "" if len(jobs.jobs) == 1 else job.title  # of the only job the name says nothing
            under = grouped(mine, by, context, kind.noun, _row_state, part=job.job, title=title)
            rows += under
    return rows


def _job_head(job: JobSummary, shown: int | None) -> GroupHeader:
    """The head of a job: seen of expected, and how many of them are shown where a filter leaves some out."""
    launcher = [Span(f"  {job.launcher}", "muted")] if job.launcher else []
    passing = [Span(f"{shown} shown   ", "accent")] if shown is not None else []
    spans = (
        Span(" ▾ ", "muted"), Span(job.title, "strong"), Span("  "),
        Span(format.seen(job.found, job.world_size), "text" if job.is_complete else "warning"),
        Span(" ranks   ", "muted"), *passing, *state_spans(job.counts), *launcher,
    )  # fmt: skip
    return GroupHeader("job", job.job, spans, job.job)
