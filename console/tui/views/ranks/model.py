"""The Ranks view as a list: columns, filter fields, groupings, and the rows of all jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ....present.spans import GLYPHS, Span, rank_status, state_word
from ....records import Gpu, Watched
from ....records.metrics import RANK as METRICS
from ....records.metrics import Metric
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.column import ColumnField, column_field, keyed, metric_columns, plain_style, text_or_unknown
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, GroupHeader, Grouping, RowContext, RowInContext, grouped
from ...models.heat_map import GpuIndex
from ...models.job_ranks import JobsSummary, JobSummary, RankListRow, state_spans
from ...models.list_kind import DEFAULT_ARRANGEMENT, Arrangement, ListKind, attribute, state_order, text_attribute
from ...models.node_summary import FleetSummary
from ...models.rows import RowState, SteadyOrder

Row = GroupHeader | RankListRow


def _style(row: RankListRow, text: str) -> str:
    """Values of a node without fresh data are stale."""
    return row.status if row.silent else plain_style(row, text)


def _state_text(row: RankListRow) -> str:
    return f"{GLYPHS[row.status]} {state_word(row.state)}" + (f" {row.silent}" if row.silent else "")


def _row_state(row: RankListRow) -> RowState:
    return rank_status(row.state), row.state


def _wchan_text(value: str | None) -> str:
    """The kernel writes 0 for a process that does not sleep in the kernel."""
    return format.UNKNOWN if not value or value == "0" else clean(value)


def _gpu_text(value: str | None) -> str:
    """An index, or the first characters of a uuid."""
    if not value:
        return format.UNKNOWN
    return clean(value) if len(value) <= 4 else clean(value).removeprefix("GPU-")[:8]


FIELDS: Final[dict[str, ColumnField[RankListRow]]] = keyed(
    column_field("rank", "rank", lambda row: row.number, format.integer, _style),
    ColumnField("state", "state", _state_text, lambda row: state_order(_row_state(row)), lambda row, _: row.status),
    column_field("node", "node", attribute("rank", "node"), text_or_unknown, _style, natural),
    column_field("local", "local rank", attribute("rank", "local_rank"), format.integer, _style),
    column_field("gpu", "gpu", attribute("rank", "gpu"), _gpu_text, _style, natural),
    column_field("pid", "pid", attribute("rank", "pid"), format.integer, _style),
    *metric_columns(METRICS, lambda metric, row: metric.read(row.stat), _style),
    column_field("wchan", "wchan", attribute("stat", "wchan"), _wchan_text, _style),
    column_field("attempt", "attempt", lambda row: row.attempt if row.rank else None, format.integer, _style),
    column_field("source", "source", attribute("rank", "source"), text_or_unknown, _style),
    column_field("job", "job", lambda row: row.job, text_or_unknown, _style),
)


def watched_field(name: str) -> ColumnField[RankListRow]:
    """The field of a watched variable; numbers sort before texts."""

    def read(row: RankListRow) -> Watched | None:
        return row.stat.watched.get(name) if row.stat and row.stat.watched else None

    def order(value: Watched) -> Any:
        return (True, 0, value) if isinstance(value, str) else (False, value, "")

    return column_field(f"watched:{name}", clean(name), read, format.value, _style, order)


# -- filter and groups -------------------------------------------------------------------------------------------------


def _node(entry: RowInContext[RankListRow]) -> str | None:
    return entry.row.rank.node if entry.row.rank else None


def _gpu_of(entry: RowInContext[RankListRow]) -> Gpu | None:
    """The GPU assigned to the rank, by index or uuid."""
    rank = entry.row.rank
    if rank is None or not rank.gpu:
        return None
    gpus = (now.gpu for now in entry.context.gpus.of(rank.node) if now.gpu)
    return next((gpu for gpu in gpus if rank.gpu in (str(gpu.index), gpu.uuid)), None)


def _gpu(name: str) -> Callable[[RowInContext[RankListRow]], Value]:
    return lambda entry: getattr(_gpu_of(entry), name, None)


def _number(name: str) -> Callable[[RowInContext[RankListRow]], Value]:
    return lambda entry: getattr(entry.row.rank, name) if entry.row.rank else None


def _metric(metric: Metric, entry: RowInContext[RankListRow]) -> Value:
    value: Value = metric.read(entry.row.stat)
    return value


def _wchan(entry: RowInContext[RankListRow]) -> Value:
    value = text_attribute("stat", "wchan")(entry)
    return None if value == "0" else value


def _states(entry: RowInContext[RankListRow]) -> tuple[str, ...]:
    """The state as recorded and as displayed, and its status: `state:failed` matches everything drawn as failed."""
    row = entry.row
    return (row.state, state_word(row.state), row.status, *(() if row.silent else (rank_status(row.state),)))


def _words(entry: RowInContext[RankListRow]) -> Iterable[str]:
    row = entry.row
    yield row.state
    yield state_word(row.state)
    yield clean(row.job)
    yield row.reason
    for read in (*(text_attribute("rank", name) for name in ("node", "source", "launcher")), _wchan):
        value = read(entry)
        if isinstance(value, str):
            yield value
    yield from entry.context.tags(_node(entry))
    if entry.context.is_simulated(_node(entry)):
        yield "simulated"


RANKS: Final[Vocabulary[RowInContext[RankListRow]]] = Vocabulary(
    (
        FilterField("state", "word", _states, "state of the rank, or ok, warning, failed, stale, unknown",
            offers=lambda entry: _states(entry)[1:]),
        FilterField("node", "word", text_attribute("rank", "node"), "node name, e.g. node0[1-3]*"),
        FilterField("job", "text", lambda entry: clean(entry.row.job), "part of the job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: entry.row.number, "rank numbers, e.g. 0-7,137"),
        FilterField("util", "number", _gpu("util_pct"), "utilisation of its GPU in %, e.g. <10", ("gpu_util",)),
        FilterField("mem", "size", _gpu("mem_used_bytes"), "memory used on its GPU, e.g. >40G", ("gpu_mem",)),
        *metric_filters(METRICS[:3], _metric),
        FilterField("local", "number", _number("local_rank"), "local rank", ("local_rank",)),
        FilterField("gpu", "word", text_attribute("rank", "gpu"), "index or UUID of its GPU"),
        FilterField("pid", "number", _number("pid"), "process id"),
        *metric_filters(METRICS[3:], _metric),
        FilterField("wchan", "text", _wchan, "part of the kernel wait channel"),
        FilterField("attempt", "number", lambda entry: entry.row.attempt if entry.row.rank else None,
            "restart attempt of the job"),
        FilterField("source", "text", text_attribute("rank", "source"), "where the rank was detected"),
        FilterField("class", "text", lambda entry: entry.context.class_of(_node(entry)),
            "part of the hardware class of its node"),
        FilterField("reason", "text", lambda entry: entry.row.reason or None, "why it is missing or not readable"),
    ),
    _words,
)  # fmt: skip
#: Ranks of different jobs are never in one group.
GROUPINGS: Final[tuple[Grouping[RankListRow], ...]] = (
    Grouping("job", lambda entry: entry.row.job),
    Grouping("node", _node),
    Grouping("state", lambda entry: entry.row.state, lambda state: state_order((rank_status(state), state)),
        is_state=True),
    Grouping("class", lambda entry: entry.context.class_of(_node(entry))),
    Grouping("tag", lambda entry: entry.context.all_tags(_node(entry))),
    NONE,
)  # fmt: skip


def _object(row: RankListRow) -> dict[str, Any]:
    """The state on the screen, and the records in their own units."""
    return {
        "job": row.job, "attempt": row.attempt, "rank": row.number, "state": row.state,
        "reason": row.reason or None, "silent": row.silent or None,
        "record": row.rank, "stat": row.stat,
    }  # fmt: skip


def _name(row: RankListRow) -> str:
    """What findings and commands call it: a rank, or a process that has no rank."""
    if row.number is not None or row.rank is None:
        return f"rank {row.number}"
    return f"{row.rank.node} pid {row.rank.pid}"


KIND: Final[ListKind[RankListRow]] = ListKind(
    "rank", "rank", FIELDS, RANKS, GROUPINGS, _row_state, _object, _name, row_note=lambda row: row.reason,
)  # fmt: skip

# -- rows --------------------------------------------------------------------------------------------------------------

_NOWHERE: Final = RowContext(FleetSummary(), {}, GpuIndex(), JobsSummary())


def rank_rows(
    jobs: JobsSummary, arrangement: Arrangement = DEFAULT_ARRANGEMENT, *, context: RowContext = _NOWHERE,
    passes: Callable[[RankListRow], bool] | None = None, steady: SteadyOrder[RankListRow] | None = None,
    kind: ListKind[RankListRow] = KIND,
) -> Sequence[Row]:  # fmt: skip
    """All rows that pass, grouped within their jobs; ranks with an unknown sort value are last in their group.

    `steady` keeps the order from call to call, so that jitter moves no row.
    """
    passing = [row for job in jobs.jobs for row in job.rows if passes is None or passes(row)]
    sort = arrangement.sort if arrangement.sort in kind.fields else kind.sort
    if sort != kind.sort or arrangement.reverse:  # they are in this order
        steady = steady or SteadyOrder(lambda: 0.0)
        passing = steady.sorted(passing, kind.fields[sort].order, kind.fields[sort].noise, arrangement.reverse)
    of_job: dict[str, list[RankListRow]] = {job.job: [] for job in jobs.jobs}
    for row in passing:
        of_job[row.job].append(row)
    by = kind.grouping(arrangement.group)
    rows: list[Row] = []
    for job in jobs.jobs:
        own = of_job[job.job]
        if not own and passes is not None:
            continue
        if by.name == "job":
            rows += [_job_head(job, len(own) if passes is not None else None), *own]
        else:
            title = "" if len(jobs.jobs) == 1 else job.title
            under = grouped(own, by, context, kind.noun, _row_state, part=job.job, title=title)
            rows += under
    return rows


def _job_head(job: JobSummary, shown: int | None) -> GroupHeader:
    """Header of a job: discovered of expected ranks, and how many pass the filter."""
    launcher = [Span(f"  {job.launcher}", "muted")] if job.launcher else []
    passing = [Span(f"{shown} shown   ", "accent")] if shown is not None else []
    spans = (
        Span(" ▾ ", "muted"), Span(job.title, "strong"), Span("  "),
        Span(format.seen(job.discovered, job.world_size), "text" if job.is_complete else "warning"),
        Span(" ranks   ", "muted"), *passing, *state_spans(job.counts), *launcher,
    )  # fmt: skip
    return GroupHeader("job", job.job, spans, job.job)
