"""0 Jobs: one row per job, started by gconsole or discovered; Enter opens the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....present.spans import Line, plain
from ...keymap.actions import bindings, in_scope
from ...models.export_table import ExportTable
from ...models.list_kind import ListKind
from ...snapshot import ScreenSnapshot
from ...widgets.record_grid import GridColumn, RecordGrid
from ..list_view import column
from ..paged_list import PagedListView
from .model import FIELDS, KIND, JobRow, job_rows
from .page import JobPage
from .page_model import FIELDS as LINE_FIELDS
from .page_model import KIND as LINE

#: In screen order. At 80 cells: state, job, runtime, nodes, ranks, step, status detail.
COLUMNS: tuple[GridColumn[JobRow], ...] = (
    column(FIELDS["state"], 12, leads=True),
    column(FIELDS["job"], 14, leads=True, grow=16),
    column(FIELDS["ran"], 8, 3, right=True),
    column(FIELDS["age"], 10, 6, right=True),
    column(FIELDS["nodes"], 5, 5, right=True),
    column(FIELDS["ranks"], 7, 2, right=True),
    column(FIELDS["step"], 6, 4, grow=2, right=True),
    column(FIELDS["exit"], 4, 7, right=True),
    column(FIELDS["launcher"], 10, 9),
    column(FIELDS["where"], 10, 10, grow=14),
    column(FIELDS["reason"], 12, 1, grow=60),
    column(FIELDS["command"], 14, 8, grow=30),
)
_NOTHING = (
    plain("No jobs on these nodes."),
    plain(""),
    plain("gconsole run start hosts.toml --nodes 4 -- train.py", "accent"),
    plain("starts a job on shared nodes without a scheduler.", "muted"),
)


class JobsView(PagedListView[JobRow, str]):
    """The grid, or the page of one job."""

    scope = "jobs"
    footer_actions = ("jobs.stop", "jobs.start", "app.diagnose")
    BINDINGS = bindings(in_scope("jobs"))
    kind, columns = KIND, COLUMNS

    def __init__(self, *, id: str) -> None:
        self._page = JobPage(id="job-page")
        grid: RecordGrid[Any] = RecordGrid(COLUMNS, id="job-grid")
        super().__init__(grid, self._page, id=id)

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """The jobs, and the second: rows show ages in seconds."""
        return (frame.started, frame.jobs, frame.second)

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[JobRow]:
        """One row per job."""
        return job_rows(frame.started, frame.jobs, frame.now)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """How to start a job."""
        return _NOTHING if frame.settled else (plain("discovering jobs …", "muted"),)

    @property
    def watched_job(self) -> str | None:
        """The job of the page."""
        return self._page.key

    def show_note(self, text: str) -> None:
        """Add a message to the output on the page."""
        self._page.show_note(text)

    def on_escape(self) -> bool:
        """Clear the filter of the page, close the page, or clear the filter of the list."""
        return (self.is_paged and self._page.on_escape()) or super().on_escape()

    def action_filter(self) -> None:
        """Edit the filter of the list, or of the output on the page."""
        if self.is_paged:
            self._page.filter.open()
        else:
            super().action_filter()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """On the page, filter and copy act on the output."""
        if action == "stop":
            row = self.chosen_row
            return True if row is not None and row.can_stop else None
        if action in ("fetch", "sync"):
            row = self.chosen_row
            return True if row is not None and row.started is not None else None
        if self.is_paged and action in ("filter", "copy", "copy_json"):
            return True
        return super().check_action(action, parameters)

    @property
    def chosen_row(self) -> JobRow | None:
        """The job of the page, or under the cursor."""
        key = self.selected_key
        if key is None or self._frame is None:
            return None
        return next((row for row in self.all_rows(self._frame) if row.key == key), None)

    @property
    def selected_job(self) -> str | None:
        """That job, as its ranks name it."""
        row = self.chosen_row
        return row.ranks.job if row is not None and row.ranks is not None else None

    @property
    def selected_node(self) -> str | None:
        """The node under the cursor of the page."""
        return self._page.selected_node if self.is_paged else None

    def action_stop(self) -> None:
        """Stop the job after confirmation."""
        row = self.chosen_row
        if row is not None and row.can_stop:
            self.console.jobs.stop(row)

    def action_start(self) -> None:
        """Start a job."""
        self.console.job_tasks.start()

    def action_fetch(self) -> None:
        """Copy files of the job from its nodes."""
        row = self.chosen_row
        if row is not None and row.started is not None:
            self.console.job_tasks.fetch(row.started)

    def action_sync(self) -> None:
        """Copy a folder to the nodes of the job."""
        row = self.chosen_row
        if row is not None and row.started is not None:
            self.console.job_tasks.sync(row.started)

    def _copied(self) -> tuple[ListKind[Any], Sequence[Any], Sequence[str]]:
        """On the page the line under the cursor; if the plan has the focus, the job."""
        if not self.is_paged:
            return super()._copied()
        lines = self._page.chosen_lines()
        return (LINE, lines, list(LINE_FIELDS)) if lines else (KIND, self._chosen(), list(FIELDS))

    def export_tables(self) -> Sequence[ExportTable]:
        """The output on the page, and the jobs."""
        return [*(self._page.export_tables() if self.is_paged else ()), *super().export_tables()]
