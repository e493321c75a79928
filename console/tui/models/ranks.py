"""The rows of the Ranks view: a row a rank, in groups; what each column says and how it sorts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...nodesets import natural
from .. import figures
from ..status import BY_WEIGHT, GLYPHS, rank_status
from ..text import clean
from .jobs import Jobs, JobSummary, RankRow, state_spans
from .ordering import Noise, SteadyOrder
from .spans import Span

#: What ranks can be grouped by; jobs are never mixed, whichever it is.
Grouping = Literal["job", "node", "state"]
GROUPINGS: Final[tuple[Grouping, ...]] = ("job", "node", "state")


_NO_NOISE: Final = Noise()


@dataclass(frozen=True)
class JobRow:
    """The head of a job's group; `shown` of its rows, where a filter leaves some out."""

    job: JobSummary
    shown: int | None = None

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
        shown = [Span(f"{self.shown} shown   ", "accent")] if self.shown is not None else []
        return (
            Span(" ▾ ", "muted"), Span(job.title, "strong"), Span("  "),
            Span(figures.seen(job.found, job.world_size), "text" if job.is_complete else "warning"),
            Span(" ranks   ", "muted"), *shown, *state_spans(job.counts), *launcher,
        )  # fmt: skip


@dataclass(frozen=True)
class GroupRow:
    """The head of some ranks of one job: those of a node, or in a state. `value` is None where nobody knows it."""

    job: JobSummary
    by: Grouping
    value: str | None
    alone: bool  # there is no other job: its name says nothing
    counts: dict[str, int]  # state → ranks that are shown

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.job.job, self.by, self.value or "")

    @property
    def version(self) -> tuple[object, ...]:
        return tuple(self.banner)

    @property
    def note(self) -> None:
        return None

    @property
    def node(self) -> str | None:
        """The node that it is the group of."""
        return self.value if self.by == "node" else None

    @property
    def banner(self) -> tuple[Span, ...]:
        ranks = sum(self.counts.values())
        name = self.value.replace("_", " ") if self.by == "state" and self.value else self.value
        said = clean(name) if name else f"{self.by} unknown"
        job = () if self.alone else (Span(f"  {self.job.title}", "text"),)
        states = state_spans(self.counts) if self.by != "state" else ()
        return (
            Span(" ▾ ", "muted"), Span(said, "strong"), *job, Span("  "), Span(str(ranks), "text"),
            Span(f" rank{'s' * (ranks != 1)}   ", "muted"), *states,
        )  # fmt: skip


Row = JobRow | GroupRow | RankRow


@dataclass(frozen=True)
class Field:
    """One thing known of a rank: how it is written, and how it sorts (None sorts last)."""

    key: str
    title: str
    text: Callable[[RankRow], str]
    order: Callable[[RankRow], Any]
    noise: Noise = _NO_NOISE  # by so much it moves all the time

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
    key: str, title: str, read: Callable[[RankRow], Any], write: Callable[[Any], str], order: Callable[[Any], Any],
    noise: Noise = _NO_NOISE,
) -> Field:  # fmt: skip
    return Field(key, title, lambda row: write(read(row)), lambda row: _ordered(read(row), order), noise)


def _ordered(value: Any, order: Callable[[Any], Any]) -> Any:
    return None if value is None else order(value)


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
        _field("cpu", "CPU %", _of_stat("cpu_pct"), figures.percent, _same, Noise(2.0)),
        _field("rss", "RSS", _of_stat("rss_bytes"), figures.size, _same, Noise(share=0.01)),
        _field("threads", "thr", _of_stat("threads"), _integer, _same),
        _field("ctx", "ctx/s", _of_stat("ctx_switches_s"), figures.rate, _same, Noise(share=0.1)),
        _field("wchan", "wchan", _of_stat("wchan"), _wchan, _same),
        _field("attempt", "attempt", lambda row: row.attempt if row.rank else None, _integer, _same),
        _field("source", "source", _of_rank("source"), _word, _same),
        _field("job", "job", lambda row: row.job, _word, _same),
    )
}


def rank_rows(
    jobs: Jobs, sort: str = "rank", reverse: bool = False, *, by: Grouping = "job",
    passes: Callable[[RankRow], bool] | None = None, steady: SteadyOrder[RankRow] | None = None,
) -> Sequence[Row]:  # fmt: skip
    """All rows that pass, in groups: jobs are never mixed, and a rank without that figure stands last in its group.

    `steady` remembers the order from one call to the next, so that jitter moves no row.
    """
    found = [row for job in jobs.jobs for row in job.rows if passes is None or passes(row)]
    steady = steady or SteadyOrder(lambda: 0.0)
    if sort != "rank" or reverse:
        found = steady.sorted(found, FIELDS[sort].order, FIELDS[sort].noise, reverse)
    of_job: dict[str, list[RankRow]] = {job.job: [] for job in jobs.jobs}
    for row in found:
        of_job[row.job].append(row)
    rows: list[Row] = []
    for job in jobs.jobs:
        mine = of_job[job.job]
        if not mine and passes is not None:
            continue
        if by == "job":
            rows += [JobRow(job, len(mine) if passes is not None else None), *mine]
        else:
            rows += _grouped(job, mine, by, alone=len(jobs.jobs) == 1)
    return rows


def _grouped(job: JobSummary, ranks: Sequence[RankRow], by: Grouping, *, alone: bool) -> list[Row]:
    """The ranks of one job under a head each for what they have in common; what nobody knows stands last."""
    groups: dict[str | None, list[RankRow]] = {}
    for row in ranks:
        value = row.state if by == "state" else row.rank.node if row.rank else None
        groups.setdefault(value, []).append(row)
    weigh = _by_badness if by == "state" else natural
    rows: list[Row] = []
    for value in [*sorted((value for value in groups if value is not None), key=weigh), *(None,) * (None in groups)]:
        rows.append(GroupRow(job, by, value, alone, dict(Counter(row.state for row in groups[value]))))
        rows += groups[value]
    return rows


def _by_badness(state: str) -> Any:
    return BY_WEIGHT.index(rank_status(state)), state


def ranks_under(rows: Sequence[Row], chosen: Row | None) -> list[RankRow]:
    """The rank that was chosen, or all of the group whose head was."""
    if chosen is None or isinstance(chosen, RankRow):
        return [chosen] if chosen is not None else []
    at = next((at for at, row in enumerate(rows) if row.key == chosen.key), len(rows))
    found: list[RankRow] = []
    for row in rows[at + 1 :]:
        if not isinstance(row, RankRow):
            break
        found.append(row)
    return found
