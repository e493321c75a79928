"""The rows of the Ranks view: a group a job, a row a rank; what each column says and how it sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...nodesets import natural
from .. import figures
from ..status import BY_WEIGHT, GLYPHS, rank_status
from ..text import clean
from .jobs import Jobs, JobSummary, RankRow, state_spans
from .spans import Span


@dataclass(frozen=True)
class JobRow:
    """The head of a job's group."""

    job: JobSummary

    @property
    def key(self) -> tuple[str]:
        return (self.job.job,)

    @property
    def version(self) -> tuple[object, ...]:
        return tuple(self.banner)

    @property
    def note(self) -> None:
        return None

    @property
    def banner(self) -> tuple[Span, ...]:
        job = self.job
        launcher = [Span(f"  {job.launcher}", "muted")] if job.launcher else []
        return (
            Span(" ▾ ", "muted"), Span(job.title, "strong"), *launcher,
            Span("  "), Span(figures.seen(job.found, job.world_size), "text" if job.is_complete else "warning"),
            Span(" ranks   ", "muted"), *state_spans(job.counts),
        )  # fmt: skip


Row = JobRow | RankRow


@dataclass(frozen=True)
class Field:
    """One thing known of a rank: how it is written, and how it sorts (None sorts last)."""

    key: str
    title: str
    text: Callable[[RankRow], str]
    order: Callable[[RankRow], Any]

    def span(self, row: RankRow) -> Span:
        """Its text in the row's style; figures of a silent node are drawn as stale."""
        text = self.text(row)
        if row.silent or self.key == "state":
            return Span(text, row.status)
        return Span(text, "muted" if text == figures.UNKNOWN else "text")


def _state_text(row: RankRow) -> str:
    return f"{GLYPHS[row.status]} {row.state.replace('_', ' ')}" + (f" {row.silent}" if row.silent else "")


def _of_rank(name: str) -> Callable[[RankRow], Any]:
    return lambda row: getattr(row.rank, name) if row.rank else None


def _of_stat(name: str) -> Callable[[RankRow], Any]:
    return lambda row: getattr(row.stat, name) if row.stat else None


def _field(
    key: str, title: str, read: Callable[[RankRow], Any], write: Callable[[Any], str], order: Callable[[Any], Any]
) -> Field:
    return Field(key, title, lambda row: write(read(row)), lambda row: _ordered(read(row), order))


def _ordered(value: Any, order: Callable[[Any], Any]) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, order(value))


def _word(value: str | None) -> str:
    return clean(value) if value else figures.UNKNOWN


def _same(value: Any) -> Any:
    return value


def _integer(value: int | None) -> str:
    return figures.UNKNOWN if value is None else str(value)


def _wchan(value: str | None) -> str:
    """The kernel writes 0 where the process sleeps in no kernel function."""
    return figures.UNKNOWN if not value or value == "0" else clean(value)


def _gpu_text(value: str | None) -> str:
    """An index as it is; of a uuid what tells it from its neighbours."""
    if not value:
        return figures.UNKNOWN
    return clean(value) if len(value) <= 4 else clean(value).removeprefix("GPU-")[:8]


FIELDS: dict[str, Field] = {
    field.key: field
    for field in (
        _field("rank", "rank", lambda row: row.number, _integer, _same),
        Field("state", "state", _state_text, lambda row: (BY_WEIGHT.index(rank_status(row.state)), row.state)),
        _field("node", "node", _of_rank("node"), _word, natural),
        _field("local", "local", _of_rank("local_rank"), _integer, _same),
        _field("gpu", "gpu", _of_rank("gpu"), _gpu_text, natural),
        _field("pid", "pid", _of_rank("pid"), _integer, _same),
        _field("step", "step", _of_stat("step"), figures.count, _same),
        _field("cpu", "CPU %", _of_stat("cpu_pct"), figures.percent, _same),
        _field("rss", "RSS", _of_stat("rss_bytes"), figures.size, _same),
        _field("threads", "thr", _of_stat("threads"), _integer, _same),
        _field("ctx", "ctx/s", _of_stat("ctx_switches_s"), figures.rate, _same),
        _field("wchan", "wchan", _of_stat("wchan"), _wchan, _same),
        _field("attempt", "attempt", lambda row: row.attempt if row.rank else None, _integer, _same),
        _field("source", "source", _of_rank("source"), _word, _same),
        _field("job", "job", lambda row: row.job, _word, _same),
    )
}


def rank_rows(jobs: Jobs, sort: str = "rank", reverse: bool = False) -> Sequence[Row]:
    """All rows: jobs are never mixed, and a rank without that figure stands last in its job, whichever the order."""
    rows: list[Row] = []
    for job in jobs.jobs:
        rows.append(JobRow(job))
        rows.extend(_sorted(job.rows, sort, reverse))
    return rows


def _sorted(rows: Sequence[RankRow], sort: str, reverse: bool) -> Sequence[RankRow]:
    if sort == "rank" and not reverse:
        return rows
    order = FIELDS[sort].order
    known = [row for row in rows if not _is_unknown(order(row))]
    unknown = [row for row in rows if _is_unknown(order(row))]
    return [*sorted(known, key=order, reverse=reverse), *unknown]


def _is_unknown(key: Any) -> bool:
    return key[0] is True
