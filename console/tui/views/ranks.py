"""2 Ranks: a row a rank, thousands of them, jobs never mixed, missing ranks among the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from textual.app import ComposeResult

from ...records import Process
from ...store import ProcessKey
from ...table import Table
from .. import clipboard
from ..keys import bindings, in_scope
from ..models import copying, stories
from ..models.jobs import Jobs, RankKey, RankRow
from ..models.ordering import SteadyOrder
from ..models.rank_filter import RANKS, Around, Seen, passing, values_now
from ..models.ranks import FIELDS, GROUPINGS, GroupRow, Row, rank_rows, ranks_under
from ..models.sheets import Sheet
from ..models.spans import Line, Span, plain
from ..models.tables import counted, rank_sheet
from ..watch import Frame
from ..widgets.filter_bar import FilterBar
from ..widgets.record_grid import Column, RecordGrid
from ..widgets.report import Report
from .base import Teller, View


def _column(
    key: str, width: int, drop: int = 0, *, grow: int = 0, right: bool = False, leads: bool = False
) -> Column[RankRow]:
    field = FIELDS[key]
    return Column(field.key, field.title, width, field.span, drop, grow, "right" if right else "left", leads)


#: In their order on the screen. At 80 cells: rank, state, node, gpu, pid, step, CPU, RSS, wchan; at 60 the first few.
COLUMNS: tuple[Column[RankRow], ...] = (
    _column("rank", 5, right=True, leads=True),
    _column("state", 11, grow=8, leads=True),
    _column("node", 10, 1, grow=14),
    _column("local", 5, 10, right=True),
    _column("gpu", 3, 6, grow=5, right=True),
    _column("pid", 7, 3, right=True),
    _column("step", 7, 5, grow=2, right=True),
    _column("cpu", 5, 2, right=True),
    _column("rss", 6, 7, right=True),
    _column("threads", 4, 9, right=True),
    _column("ctx", 6, 11, right=True),
    _column("wchan", 14, 8, grow=14),
    _column("attempt", 7, 13, right=True),
    _column("source", 14, 12, grow=6),
    _column("job", 12, 14, grow=24),
)

_NOTHING = (
    plain("No job found on these nodes."),
    plain(""),
    plain("A rank is a process with RANK and WORLD_SIZE in its environment or on", "muted"),
    plain("its command line, or its launcher's own names for them: torchrun, Slurm,", "muted"),
    plain("Open MPI, MPICH, Flux, Horovod, JAX.", "muted"),
    plain(""),
    Line((Span("Runs as another user?  ", "muted"), Span('[agent] run_as = "sudo"'), Span(" in hosts.toml", "muted"))),
    Line((Span("Not started yet?       ", "muted"), Span("it appears within seconds of its start"))),
)


_NO_MATCH = (
    plain("No rank passes the filter."),
    plain(""),
    plain("Esc clears it; / changes it.", "muted"),
)


class Ranks(View):
    """The grid under its filter, or a few words where there is nothing to list."""

    scope = "ranks"
    BINDINGS = bindings(in_scope("ranks"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._grid: RecordGrid[Row] = RecordGrid(COLUMNS, id="grid")  # type: ignore[arg-type]
        self._nothing = Report(id="nothing")
        self._filter: FilterBar[Seen] = FilterBar(RANKS, self._values, id="rank-filter")
        self._sort, self._reverse = "rank", False
        self._by = GROUPINGS[0]
        self._steady: SteadyOrder[RankRow] = SteadyOrder(time.monotonic)
        self._jobs: Jobs | None = None
        self._frame: Frame | None = None

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing

    def home(self) -> RecordGrid[Row]:
        return self._grid

    def look(self, frame: Frame) -> None:
        self._frame = frame
        if frame.jobs is not self._jobs or self._steady.is_due:
            self._jobs = frame.jobs
            self._arrange()
        self._say_nothing(frame)

    def _arrange(self) -> None:
        """Draw the rows of the last frame in the order, the groups and the filter of now."""
        if self._jobs is None or self._frame is None:
            return
        wanted = self._filter.wanted
        passes = passing(wanted, _around(self._frame)) if wanted else None
        rows = rank_rows(self._jobs, self._sort, self._reverse, by=self._by, passes=passes, steady=self._steady)
        self._grid.show(rows, self._sort, self._reverse)
        found = sum(isinstance(row, RankRow) for row in rows)
        self._filter.count(found, sum(len(job.rows) for job in self._jobs.jobs), "ranks")

    def _say_nothing(self, frame: Frame) -> None:
        """Words in the place of rows: there is no job, or the filter lets nothing through."""
        empty = not frame.jobs.jobs
        unmatched = not empty and not self._grid.rows
        self._grid.display, self._nothing.display = not empty, empty or unmatched
        self.set_class(unmatched, "unmatched")
        if unmatched:
            self._nothing.show(_NO_MATCH)
        elif empty:
            self._nothing.show(_NOTHING if frame.settled else (plain("looking for ranks …", "muted"),))

    # -- the filter --------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type a filter."""
        self._filter.open()

    def climb(self) -> bool:
        if not self._filter.wanted:
            return False
        self._filter.clear()
        return True

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self._arrange()
        if self._frame is not None:
            self._say_nothing(self._frame)

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self._grid.focus()

    def _values(self, field: str) -> Sequence[str]:
        if self._jobs is None or self._frame is None:
            return ()
        return values_now(field, self._jobs, _around(self._frame))

    # -- the order ---------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Sort by the next column that is shown."""
        shown = self._grid.shown_columns
        place = shown.index(self._sort) if self._sort in shown else -1
        self._sort_by(shown[(place + 1) % len(shown)])

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._reverse = not self._reverse
        self._steady.forget()
        self._arrange()

    def _sort_by(self, key: str) -> None:
        self._reverse = not self._reverse if key == self._sort else False
        self._sort = key
        self._steady.forget()
        self._arrange()

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self._sort_by(event.column)

    def action_group(self) -> None:
        """Group by the next of job, node, state."""
        self._by = GROUPINGS[(GROUPINGS.index(self._by) + 1) % len(GROUPINGS)]
        self._arrange()
        self.notify(f"grouped by {self._by}", timeout=2, markup=False)

    # -- what is under the cursor ------------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """The rank under the cursor, or those of the group, as text."""
        rows = ranks_under(self._grid.rows, self._grid.selected)
        clipboard.copy(self.app, copying.as_text(rows, self._grid.shown_columns), _ranks(rows))

    def action_copy_json(self) -> None:
        """The same as JSON."""
        rows = ranks_under(self._grid.rows, self._grid.selected)
        clipboard.copy(self.app, copying.as_json(rows), _ranks(rows))

    def sheets(self) -> Sequence[Sheet]:
        columns, under = self._grid.shown_columns, ranks_under(self._grid.rows, self._grid.selected)
        shown = [row for row in self._grid.rows if isinstance(row, RankRow)]
        of = sum(len(job.rows) for job in self._jobs.jobs) if self._jobs else 0
        what = f"Ranks: {counted('rank', len(shown), of)}, as listed"
        found = [rank_sheet(what, shown, columns)] if shown else []
        if under:
            found.append(rank_sheet(f"Selected: {counted('rank', len(under))}", under, columns))
        return found

    @property
    def selected_node(self) -> str | None:
        row = self._grid.selected
        if isinstance(row, GroupRow):
            return row.node
        return row.rank.node if isinstance(row, RankRow) and row.rank else None

    def teller(self) -> Teller | None:
        row = self._grid.selected
        if row is None:
            return None
        if isinstance(row, RankRow):
            return partial(_tell_rank, key=row.key)
        return partial(_tell_job, job=row.job.job)


def _ranks(rows: Sequence[RankRow]) -> str:
    return f"{len(rows)} rank{'s' * (len(rows) != 1)}"


def _around(frame: Frame) -> Around:
    return Around(frame.fleet, frame.nodes, frame.gpus)


def _tell_rank(frame: Frame, key: RankKey) -> stories.Story | None:
    for job in frame.jobs.jobs:
        for row in job.rows if job.job == key[0] else ():
            if row.key == key:
                return stories.rank_story(row, _command(row, frame.processes))
    return None


def _command(row: RankRow, processes: Table[ProcessKey, Process]) -> str | None:
    if row.rank is None:
        return None
    process = processes.get((row.rank.node, row.rank.pid, row.rank.start_ticks))
    return process.cmdline if process else None


def _tell_job(frame: Frame, job: str) -> stories.Story | None:
    return next((stories.job_story(found) for found in frame.jobs.jobs if found.job == job), None)
