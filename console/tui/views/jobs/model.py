"""A row a job: one that gconsole started, as its nodes tell of it, or one that was found running."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....launch.format import signal_name
from ....launch.state import JobNodeStatus, JobStatus
from ....present.spans import Span
from ....present.status import BY_WEIGHT, GLYPHS, Status, rank_status, state_word
from ....text import format
from ....text.cells import clean
from ...models.job_ranks import JobsSummary, JobSummary
from ...models.row import PlainRow

#: What a started job is → how bad that is. `stopped` is what somebody wanted.
STATUS: Final[dict[str, Status]] = {
    "planned": "unknown", "dispatching": "unknown", "running": "ok", "completed": "ok", "failed": "failed",
    "stopping": "warning", "stopped": "unknown", "partial": "warning", "unknown": "stale",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobRow(PlainRow):
    """One job. `started` is None for one that somebody else started, `ranks` where none of its ranks was found."""

    name: str  # what gconsole calls it; of one that was found, what its ranks do
    started: JobStatus | None
    ranks: JobSummary | None
    now: int  # console time, ns

    @property
    def key(self) -> str:
        return self.name

    @property
    def version(self) -> tuple[object, ...]:
        return (self.name, id(self.started), id(self.ranks), self.now // 1_000_000_000)

    @property
    def word(self) -> str:
        return self.started.state if self.started else "found"

    @property
    def status(self) -> Status:
        if self.started is not None:
            return STATUS[self.started.state]
        states = {rank_status(state) for state, count in self.ranks.counts.items() if count} if self.ranks else set()
        return next((status for status in BY_WEIGHT if status in states), "unknown")

    @property
    def nodes(self) -> tuple[str, ...]:
        """In the order of their node rank; of a job that was found, those with a rank of it."""
        if self.started is not None:
            return tuple(line.node for line in self.started.lines)
        rows = self.ranks.rows if self.ranks else ()
        return tuple(dict.fromkeys(row.rank.node for row in rows if row.rank is not None))

    @property
    def world_size(self) -> int | None:
        return self.started.ordered.world_size if self.started else self.ranks.world_size if self.ranks else None

    @property
    def launcher(self) -> str:
        return self.started.ordered.launcher if self.started else self.ranks.launcher if self.ranks else ""

    @property
    def command(self) -> str:
        return clean(shlex.join(self.started.ordered.command)) if self.started else ""

    @property
    def can_stop(self) -> bool:
        """Whether it may still run somewhere, and we know how to end it."""
        return self.started is not None and not self.started.is_over

    @property
    def ran_ns(self) -> int | None:
        """So long it runs by the console's clock, or ran by that of its nodes."""
        if self.started is None:
            return None
        if not self.started.is_over:
            return max(0, self.now - self.started.ordered.created)
        states = [line.now for line in self.started.lines if line.now]
        ran = [now.ended - now.started for now in states if now.started is not None and now.ended is not None]
        return max([0, *ran]) if ran else None

    @property
    def reason(self) -> str:
        """Why it is not well: what is known of the node where it went wrong first, and of those nobody can see."""
        if self.started is None:
            return _troubles(self.ranks)
        first = self.started.first_bad
        parts = [f"{first.node}: {ending(first.exit_code, first.signal, first.reason)}"] if first else []
        parts += [f"{line.node}: {line.why}" for line in self.started.lines if line.now is None][:1]
        return clean(" · ".join(parts)) or ("" if self.started.is_over else _troubles(self.ranks))


def _troubles(ranks: JobSummary | None) -> str:
    """What its ranks do that do not move: `1 stuck`."""
    counts = ranks.counts if ranks is not None else {}
    return ", ".join(f"{count} {state_word(state)}" for state, count in counts.items()
                     if count and rank_status(state) != "ok")  # fmt: skip


def ending(exit_code: int | None, signal: int | None, reason: str | None) -> str:
    """How something ended, in words: what is known beyond its code stands first."""
    how = f"ended by {signal_name(signal)}" if signal is not None else f"exit code {exit_code}" if exit_code else ""
    return "; ".join(filter(None, (reason, how))) or "ended"


def job_rows(started: Sequence[JobStatus], discovered: JobsSummary, now: int) -> list[JobRow]:
    """The jobs that gconsole started, the newest first; then those that it only found."""
    left = {summary.job: summary for summary in discovered.jobs}
    rows = []
    for view in started:
        name = view.ordered.job
        own = next((job for job in left if job == name or job.startswith(f"{name}@")), None)
        rows.append(JobRow(name, view, left.pop(own) if own is not None else None, now))
    return rows + [JobRow(name, None, summary, now) for name, summary in left.items()]


def node_status(line: JobNodeStatus) -> Status:
    return STATUS[line.now.state if line.now else "unknown"]


def state_text(row: JobRow) -> str:
    return f"{GLYPHS[row.status]} {state_word(row.word)}"


def ranks_text(row: JobRow) -> str:
    """`8/8`: found of those there should be; of a job that is over nobody expects any."""
    discovered = row.ranks.found if row.ranks else None
    if row.started is not None and row.started.is_over:
        return format.count(row.world_size)
    return format.seen(discovered, row.world_size)


def span_of(row: JobRow) -> Span:
    return Span(state_text(row), row.status)
