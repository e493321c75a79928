"""Rows of the Jobs view: jobs started by gconsole, and jobs discovered by their ranks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....launch.format import signal_name
from ....launch.state import JobNodeStatus, JobStatus
from ....present.spans import BY_WEIGHT, GLYPHS, Status, rank_status, state_word
from ....text import format
from ....text.cells import clean
from ...models.job_ranks import JobsSummary, JobSummary
from ...models.row import PlainRow

#: State of a started job → its status; `stopped` is intended.
STATUS: Final[dict[str, Status]] = {
    "planned": "unknown", "dispatching": "unknown", "running": "ok", "completed": "ok", "failed": "failed",
    "stopping": "warning", "stopped": "unknown", "partial": "warning", "unknown": "stale",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobRow(PlainRow):
    """One job. `started` is None if gconsole did not start it, `ranks` if none was discovered."""

    name: str  # given by gconsole, or by the ranks of a discovered job
    started: JobStatus | None
    ranks: JobSummary | None
    now: int  # console time, ns

    @property
    def key(self) -> str:
        """Name of the job."""
        return self.name

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with every value that the row shows."""
        return (self.name, id(self.started), id(self.ranks), self.now // 1_000_000_000)

    @property
    def word(self) -> str:
        """State; `found` for a discovered job."""
        return self.started.state if self.started else "found"

    @property
    def status(self) -> Status:
        """Status of the state; of a discovered job that of its worst rank."""
        if self.started is not None:
            return STATUS[self.started.state]
        states = {rank_status(state) for state, count in self.ranks.counts.items() if count} if self.ranks else set()
        return next((status for status in BY_WEIGHT if status in states), "unknown")

    @property
    def nodes(self) -> tuple[str, ...]:
        """By node rank; of a discovered job those with a rank."""
        if self.started is not None:
            return tuple(line.node for line in self.started.lines)
        rows = self.ranks.rows if self.ranks else ()
        return tuple(dict.fromkeys(row.rank.node for row in rows if row.rank is not None))

    @property
    def world_size(self) -> int | None:
        """Number of ranks; None if unknown."""
        return self.started.ordered.world_size if self.started else self.ranks.world_size if self.ranks else None

    @property
    def launcher(self) -> str:
        """Launcher of its ranks; empty if unknown."""
        return self.started.ordered.launcher if self.started else self.ranks.launcher if self.ranks else ""

    @property
    def command(self) -> str:
        """Command line of a started job."""
        return clean(shlex.join(self.started.ordered.command)) if self.started else ""

    @property
    def can_stop(self) -> bool:
        """Whether gconsole started it and it may still run."""
        return self.started is not None and not self.started.is_over

    @property
    def ran_ns(self) -> int | None:
        """Runtime, by the console's clock while it runs, then by the clocks of its nodes."""
        if self.started is None:
            return None
        if not self.started.is_over:
            return max(0, self.now - self.started.ordered.created)
        states = [line.now for line in self.started.lines if line.now]
        ran = [now.ended - now.started for now in states if now.started is not None and now.ended is not None]
        return max([0, *ran]) if ran else None

    @property
    def reason(self) -> str:
        """Status detail: how the first node failed, and one node whose state is unknown."""
        if self.started is None:
            return _troubles(self.ranks)
        first = self.started.first_bad
        parts = [f"{first.node}: {ending(first.exit_code, first.signal, first.reason)}"] if first else []
        parts += [f"{line.node}: {line.why}" for line in self.started.lines if line.now is None][:1]
        return clean(" · ".join(parts)) or ("" if self.started.is_over else _troubles(self.ranks))


def _troubles(ranks: JobSummary | None) -> str:
    """Counts of ranks that are not ok: `1 stuck`."""
    counts = ranks.counts if ranks is not None else {}
    return ", ".join(f"{count} {state_word(state)}" for state, count in counts.items()
                     if count and rank_status(state) != "ok")  # fmt: skip


def ending(exit_code: int | None, signal: int | None, reason: str | None) -> str:
    """How a process ended: reason, then signal or exit code."""
    how = f"ended by {signal_name(signal)}" if signal is not None else f"exit code {exit_code}" if exit_code else ""
    return "; ".join(filter(None, (reason, how))) or "ended"


def job_rows(started: Sequence[JobStatus], discovered: JobsSummary, now: int) -> list[JobRow]:
    """Jobs started by gconsole, newest first, then discovered ones."""
    left = {summary.job: summary for summary in discovered.jobs}
    rows = []
    for view in started:
        name = view.ordered.job
        own = next((job for job in left if job == name or job.startswith(f"{name}@")), None)
        rows.append(JobRow(name, view, left.pop(own) if own is not None else None, now))
    return rows + [JobRow(name, None, summary, now) for name, summary in left.items()]


def node_status(line: JobNodeStatus) -> Status:
    """Status of a job on one node."""
    return STATUS[line.now.state if line.now else "unknown"]


def state_text(row: JobRow) -> str:
    """`● running`: glyph and word."""
    return f"{GLYPHS[row.status]} {state_word(row.word)}"


def ranks_text(row: JobRow) -> str:
    """`8/8`: discovered of expected ranks; after the job has ended only the expected."""
    discovered = row.ranks.discovered if row.ranks else None
    if row.started is not None and row.started.is_over:
        return format.count(row.world_size)
    return format.seen(discovered, row.world_size)
