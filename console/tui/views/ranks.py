"""2 Ranks: a row a rank, thousands of them, jobs never mixed, missing ranks among the others."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult

from ...records import Process
from ...store import ProcessKey
from ...table import Table
from ..keys import bindings, in_scope
from ..models import stories
from ..models.jobs import Jobs, RankKey, RankRow
from ..models.ranks import FIELDS, Row, rank_rows
from ..models.spans import Line, Span, plain
from ..watch import Frame
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


class Ranks(View):
    """The grid, or a few words where there is nothing to list."""

    scope = "ranks"
    BINDINGS = bindings(in_scope("ranks"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._grid: RecordGrid[Row] = RecordGrid(COLUMNS, id="grid")  # type: ignore[arg-type]
        self._nothing = Report(id="nothing")
        self._sort, self._reverse = "rank", False
        self._jobs: Jobs | None = None

    def compose(self) -> ComposeResult:
        yield self._grid
        yield self._nothing

    def home(self) -> RecordGrid[Row]:
        return self._grid

    def look(self, frame: Frame) -> None:
        if frame.jobs is not self._jobs:
            self._jobs = frame.jobs
            self._arrange()
        empty = not frame.jobs.jobs
        self._grid.display, self._nothing.display = not empty, empty
        if empty:
            self._nothing.show(_NOTHING if frame.settled else (plain("looking for ranks …", "muted"),))

    def _arrange(self) -> None:
        if self._jobs is not None:
            self._grid.show(rank_rows(self._jobs, self._sort, self._reverse), self._sort, self._reverse)

    def action_sort(self) -> None:
        """Sort by the next column that is shown."""
        shown = self._grid.shown_columns
        place = shown.index(self._sort) if self._sort in shown else -1
        self._sort_by(shown[(place + 1) % len(shown)])

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._reverse = not self._reverse
        self._arrange()

    def _sort_by(self, key: str) -> None:
        self._reverse = not self._reverse if key == self._sort else False
        self._sort = key
        self._arrange()

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self._sort_by(event.column)

    @property
    def selected_node(self) -> str | None:
        row = self._grid.selected
        return row.rank.node if isinstance(row, RankRow) and row.rank else None

    def teller(self) -> Teller | None:
        row = self._grid.selected
        if row is None:
            return None
        if isinstance(row, RankRow):
            return partial(_tell_rank, key=row.key)
        return partial(_tell_job, job=row.job.job)


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
