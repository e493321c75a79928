"""2 Ranks: a row a rank, thousands of them, jobs never mixed, missing ranks among the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from textual.app import ComposeResult

from ....core.store import ProcessKey
from ....core.versioned_table import Table
from ....present.spans import Line, Span, plain
from ....records import Process
from ...models import detail
from ...models.grouping import GroupHeader
from ...models.job_ranks import RankKey, RankListRow
from ...models.list_kind import row_predicate
from ...snapshot import ScreenSnapshot
from ...widgets.record_grid import GridColumn, RecordGrid, as_arranged
from ..base import DetailProvider
from ..list_view import ListView, column, row_context
from .model import FIELDS, KIND, rank_rows, watched_field

#: In their order on the screen. At 80 cells: rank, state, node, gpu, pid, step, CPU, RSS, wchan; at 60 the first few.
COLUMNS: tuple[GridColumn[RankListRow], ...] = (
    column(FIELDS["rank"], 5, right=True, leads=True),
    column(FIELDS["state"], 12, grow=8, leads=True),
    column(FIELDS["node"], 10, 1, grow=14),
    column(FIELDS["local"], 10, 10, right=True),
    column(FIELDS["gpu"], 3, 6, grow=5, right=True),
    column(FIELDS["pid"], 7, 3, right=True),
    column(FIELDS["step"], 7, 5, grow=2, right=True),
    column(FIELDS["cpu"], 5, 2, right=True),
    column(FIELDS["rss"], 6, 7, right=True),
    column(FIELDS["threads"], 7, 9, right=True),
    column(FIELDS["ctx"], 7, 11, right=True),
    column(FIELDS["wchan"], 12, 8, grow=16),
    column(FIELDS["attempt"], 7, 13, right=True),
    column(FIELDS["source"], 14, 12, grow=6),
    column(FIELDS["job"], 12, 14, grow=24),
)

_NOTHING = (
    plain("No jobs on these nodes."),
    plain(""),
    plain("A rank is a process with RANK and WORLD_SIZE in its", "muted"),
    plain("environment or on its command line, or with the variables", "muted"),
    plain("of its launcher: torchrun, Slurm, Open MPI, MPICH,", "muted"),
    plain("Flux, Horovod, JAX.", "muted"),
    plain(""),
    plain("Job of another user? Set in hosts.toml:", "muted"),
    Line((Span("  [agent]"),)),
    Line((Span('  run_as = "sudo"'),)),
    Line((Span("Job not started yet? ", "muted"), Span("It appears within seconds."))),
)


class RanksView(ListView[RankListRow]):
    """The grid under its filter, or a few words where there is nothing to list."""

    scope = "ranks"
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        super().__init__(RecordGrid(COLUMNS, id="grid"), id=id)  # type: ignore[arg-type]
        self._watched: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing

    def initial_focus(self) -> RecordGrid[GroupHeader | RankListRow]:
        return self._grid

    # -- the rows ----------------------------------------------------------------------------------------------------

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.jobs, frame.settled)

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[RankListRow]:
        return [row for job in frame.jobs.jobs for row in job.rows]

    def count(self, frame: ScreenSnapshot) -> int:
        return sum(len(job.rows) for job in frame.jobs.jobs)

    def arranged_rows(self, frame: ScreenSnapshot) -> Sequence[GroupHeader | RankListRow]:
        self._watch(frame.jobs.watched)
        context = row_context(frame)
        passes = row_predicate(self._filter.wanted, context)
        return rank_rows(
            frame.jobs, self._arranged, context=context, passes=passes, steady=self._steady, kind=self.kind
        )

    def _watch(self, names: tuple[str, ...]) -> None:
        """A column for each variable that is watched, beside the step; `step` has one in any case."""
        if names == self._watched:
            return
        self._watched = names
        fields = [watched_field(name) for name in names if name != "step"]
        self.kind = replace(KIND, fields={**FIELDS, **{field.key: field for field in fields}})
        step = next(step for step, existing in enumerate(COLUMNS) if existing.key == "step") + 1
        more = tuple(column(field, 8, 4, grow=4, right=True) for field in fields)
        columns: tuple[GridColumn[Any], ...] = (*COLUMNS[:step], *more, *COLUMNS[step:])
        self.columns = columns
        self._grid.set_columns(as_arranged(columns, self._arranged.columns, self._arranged.hidden))

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        return _NOTHING if frame.settled else (plain("discovering ranks …", "muted"),)

    # -- what is under the cursor ------------------------------------------------------------------------------------

    @property
    def selected_node(self) -> str | None:
        row = self._grid.selected
        if isinstance(row, GroupHeader):
            return row.node
        return row.rank.node if row is not None and row.rank else None

    def detail_provider(self) -> DetailProvider | None:
        row = self._grid.selected
        if row is None:
            return None
        if isinstance(row, RankListRow):
            return partial(_rank_detail, key=row.key)
        return partial(_job_detail, job=row.part)


def _rank_detail(frame: ScreenSnapshot, key: RankKey) -> detail.Detail | None:
    for job in frame.jobs.jobs:
        for row in job.rows if job.job == key[0] else ():
            if row.key == key:
                return detail.rank_detail(row, _command(row, frame.processes))
    return None


def _command(row: RankListRow, processes: Table[ProcessKey, Process]) -> str | None:
    if row.rank is None:
        return None
    process = processes.get((row.rank.node, row.rank.pid, row.rank.start_ticks))
    return process.cmdline if process else None


def _job_detail(frame: ScreenSnapshot, job: str) -> detail.Detail | None:
    return next((detail.job_detail(summary) for summary in frame.jobs.jobs if summary.job == job), None)
