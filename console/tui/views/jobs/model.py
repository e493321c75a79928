"""The Jobs view as a list: started and discovered jobs as rows, columns, filter fields and groupings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....launch.format import signal_name
from ....launch.state import JobNodeStatus, JobStatus
from ....present.spans import BY_WEIGHT, GLYPHS, Status, rank_status, state_word
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold, natural
from ...models.column import ColumnField, column_field, keyed, plain_style, text_or_unknown
from ...models.filter_language import FilterField, Vocabulary
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.job_ranks import JobsSummary, JobSummary
from ...models.list_kind import ListKind, attribute, state_filter, state_order
from ...models.rows import PlainRow, RowState

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
    """Counts of ranks that are not ok, the worst state first: `1 stopped`."""
    counts = ranks.counts if ranks is not None else {}
    states = sorted((state for state, count in counts.items() if count), key=lambda s: BY_WEIGHT.index(rank_status(s)))
    return ", ".join(f"{counts[state]} {state_word(state)}" for state in states if rank_status(state) != "ok")


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


def _reason_style(row: JobRow, text: str) -> str:
    return row.status if row.status != "ok" else plain_style(row, text)


def _row_state(row: JobRow) -> RowState:
    return row.status, row.word


def _began(row: JobRow) -> int:
    """Newest first, discovered jobs last."""
    return -row.started.ordered.created if row.started else 0


def _age(row: JobRow) -> str:
    return f"{format.age(row.now - row.started.ordered.created)} ago" if row.started else format.UNKNOWN


def _exit(row: JobRow) -> int | None:
    return row.started.exit_code if row.started and row.started.is_over else None


FIELDS: Final[dict[str, ColumnField[JobRow]]] = keyed(
    ColumnField("state", "state", state_text, lambda row: state_order(_row_state(row)), lambda row, _: row.status),
    ColumnField("job", "job", lambda row: clean(row.name), lambda row: natural(row.name), plain_style),
    ColumnField("age", "started", _age, _began, plain_style),
    column_field("ran", "runtime", lambda row: row.ran_ns, format.duration_compact, plain_style),
    column_field("nodes", "nodes", lambda row: len(row.nodes), format.integer, plain_style),
    ColumnField("ranks", "ranks", ranks_text, lambda row: row.world_size, plain_style),
    column_field("step", "step", attribute("ranks", "step"), format.count, plain_style),
    column_field("launcher", "launcher", lambda row: row.launcher or None, text_or_unknown, plain_style),
    column_field("exit", "exit", _exit, format.integer,
        lambda row, text: "failed" if _exit(row) else plain_style(row, text)),
    column_field("where", "node names", lambda row: fold(row.nodes) if row.nodes else None, text_or_unknown,
        plain_style, natural),
    column_field("reason", "status detail", lambda row: row.reason or None, text_or_unknown, _reason_style),
    column_field("command", "command", lambda row: row.command or None, text_or_unknown, plain_style),
)  # fmt: skip


def _words(entry: RowInContext[JobRow]) -> Iterable[str]:
    row = entry.row
    yield clean(row.name)
    yield row.word
    yield row.command
    yield row.reason
    yield from map(clean, row.nodes)


def _tags(entry: RowInContext[JobRow]) -> tuple[str, ...]:
    return tuple(tag for node in entry.row.nodes for tag in entry.context.tags(node))


JOBS: Final[Vocabulary[RowInContext[JobRow]]] = Vocabulary(
    (
        state_filter(_row_state, "running, failed, partial, discovered, …"),
        FilterField("job", "text", lambda entry: clean(entry.row.name), "part of the job name"),
        FilterField("node", "word", lambda entry: tuple(map(clean, entry.row.nodes)),
            "node it runs on, e.g. node0[1-3]*"),
        FilterField("tag", "word", _tags, "node tag in hosts.toml"),
        FilterField("launcher", "word", lambda entry: clean(entry.row.launcher) or None, "launcher of its ranks"),
        FilterField("ranks", "number", lambda entry: entry.row.world_size, "number of ranks, e.g. >8"),
        FilterField("exit", "number", lambda entry: _exit(entry.row), "exit code"),
        FilterField("command", "text", lambda entry: entry.row.command or None, "part of the command"),
        FilterField("reason", "text", lambda entry: entry.row.reason or None, "part of the status detail"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[JobRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("launcher", lambda entry: clean(entry.row.launcher) or None),
)


def _object(row: JobRow) -> dict[str, Any]:
    """The state on the screen, and the records of its nodes."""
    view = row.started
    return {
        "job": row.name, "state": row.word, "status": row.status, "started_by_gconsole": view is not None,
        "nodes": row.nodes, "world_size": row.world_size, "ranks_found": row.ranks.discovered if row.ranks else None,
        "step": row.ranks.step if row.ranks else None, "exit_code": _exit(row), "reason": row.reason or None,
        "ran_ns": row.ran_ns, "ordered": view.ordered if view else None,
        "on_nodes": [line.now for line in view.lines] if view else None,
    }  # fmt: skip


KIND: Final = ListKind("job", "age", FIELDS, JOBS, GROUPINGS, _row_state, _object, lambda row: row.name)
