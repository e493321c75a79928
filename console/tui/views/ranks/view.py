"""2 Ranks: one row per rank, missing ones included, grouped by job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ....present.spans import Line, Span, plain
from ....text.cells import clean
from ...keymap.actions import bindings, in_scope
from ...models.grouping import GroupHeader
from ...models.job_ranks import RankListRow, rank_values
from ...models.list_kind import row_predicate
from ...snapshot import ScreenSnapshot
from ...widgets.record_grid import GridColumn, RecordGrid, as_arranged
from ..base import DetailProvider, job_in, rank_in
from ..list_view import ListView, column, row_context
from .model import FIELDS, KIND, rank_rows, watched_field

#: In screen order. At 80 cells: rank, state, node, gpu, pid, step, CPU, RSS, wchan.
COLUMNS: tuple[GridColumn[RankListRow], ...] = (
    column(FIELDS["rank"], 5, right=True, leads=True),
    column(FIELDS["state"], 12, grow=8, leads=True),
    column(FIELDS["node"], 10, 1, grow=14),
    column(FIELDS["local"], 10, 10, right=True),
    column(FIELDS["gpu"], 3, 6, grow=5, right=True),
    column(FIELDS["pid"], 7, 5, right=True),
    column(FIELDS["step"], 7, 2, grow=2, right=True),
    column(FIELDS["cpu"], 5, 3, right=True),
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
    """The grid, with a column for every watched variable."""

    scope = "ranks"
    BINDINGS = bindings(in_scope("ranks"))
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        super().__init__(RecordGrid(COLUMNS, id="grid"), id=id)  # type: ignore[arg-type]
        self._watched: tuple[str, ...] = ()

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The jobs."""
        return (frame.jobs, frame.settled)

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[RankListRow]:
        """One row per rank, missing ones included."""
        return [row for job in frame.jobs.jobs for row in job.rows]

    def arranged_rows(self, frame: ScreenSnapshot) -> Sequence[GroupHeader | RankListRow]:
        """The rows, filtered, sorted and grouped within their jobs."""
        self._set_watched(frame.jobs.watched)
        context = row_context(frame)
        passes = row_predicate(self._filter.wanted, context)
        return rank_rows(
            frame.jobs, self._arranged, context=context, passes=passes, steady=self._steady, kind=self.kind
        )

    def _set_watched(self, names: tuple[str, ...]) -> None:
        """Add a column for each watched variable behind the step, which has one anyway."""
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
        """How ranks are detected."""
        return _NOTHING if frame.settled else (plain("discovering ranks …", "muted"),)

    def node_of(self, row: RankListRow) -> str | None:
        """The node of the rank."""
        return row.rank.node if row.rank is not None else None

    def row_name(self, row: RankListRow) -> str:
        """Job, attempt and rank; the process where the rank is not known."""
        if row.number is None:
            return super().row_name(row)
        return clean(f"{row.job}/{row.attempt}/{row.number}")

    @property
    def selected_node(self) -> str | None:
        """The node of the rank or the group under the cursor."""
        row = self._grid.selected
        if isinstance(row, GroupHeader):
            return row.node
        return row.rank.node if row is not None and row.rank else None

    @property
    def selected_values(self) -> Mapping[str, object]:
        """Those of the rank under the cursor."""
        row = self._grid.selected
        return rank_values(row) if isinstance(row, RankListRow) else {"node": self.selected_node}

    def detail_provider(self) -> DetailProvider | None:
        """Details of the rank, or of the job of the group, under the cursor."""
        row = self._grid.selected
        if row is None:
            return None
        return partial(rank_in, key=row.key) if isinstance(row, RankListRow) else partial(job_in, key=row.part)
