"""Base classes of views, and the details of things in a frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace
from textual import events
from textual.containers import Container
from textual.widget import Widget

from ...present.spans import Span
from ...records import Finding
from ...text import format
from ..keymap.actions import Action, PaletteCommand, in_scope
from ..models.destination import Destination, events_of, places_of, places_of_rank
from ..models.detail import Detail, Fact, finding_detail, gpu_detail, job_detail, node_detail, rank_detail
from ..models.export_table import ExportTable
from ..models.filter_language import quoted
from ..models.finding_fold import fold_findings
from ..models.heat_map import uuid_of
from ..models.list_kind import Arrangement
from ..snapshot import ScreenSnapshot
from ..widgets.bars import Progress
from ..widgets.record_grid import Stream
from .events.model import event_detail

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Details of the selected thing in a frame; None once it is gone.
DetailProvider = Callable[[ScreenSnapshot], Detail | None]
#: Left and right end of a title bar; the right one of a page that Escape closes.
EDGE: Final = Span("─ ", "rule")
BACK: Final = (Span(" Esc", "key"), Span(" back ─", "muted"))


def follow_spans(stream: Stream[Any]) -> tuple[Span, ...]:
    """Right end of the title bar of a stream: whether it follows, else how many rows are newer."""
    if stream.following:
        return (Span(" following ", "ok"), Span("─", "rule"))
    below = f"{format.count(stream.behind)} newer" if stream.behind else "paused"
    return (Span(f" {below}  ", "warning"), Span("G", "key"), Span(" follow ", "muted"), Span("─", "rule"))


class ConsoleWidget(Container):
    """A part of the console's screen that acts through the controllers of the app."""

    @property
    def console(self) -> ConsoleApp:
        """The app."""
        return cast("ConsoleApp", self.app)

    def open_page(self, node: str, gpu: str | None = None) -> None:
        """Open the page of a node, or of one of its GPUs by uuid; Escape leads back."""
        self.app.call_later(self.console.views.show_page, node, gpu)


class View(ConsoleWidget):
    """A view, drawn from snapshots. It must not block, own a timer or keep the store; `VIEWS` lists every view."""

    #: The scope of its actions in `ACTIONS`.
    scope = ""
    #: Ids of its main actions: the footer begins with them.
    footer_actions: Collection[str] = ()

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._frame: ScreenSnapshot | None = None  # the newest one shown

    def _show_again(self) -> None:
        """Draw the newest frame again, in another size or arrangement."""
        if self._frame is not None:
            self.show_snapshot(self._frame)

    @property
    def actions(self) -> list[Action]:
        """The actions of its keys, in the order of the footer."""
        return in_scope(self.scope)

    def palette_entries(self) -> Iterable[PaletteCommand]:
        """Palette commands beside its actions."""
        return ()

    @property
    def arrangement(self) -> Arrangement:
        """The user's arrangement, to be saved."""
        return Arrangement()

    def restore(self, arrangement: Arrangement) -> None:
        """Apply a saved arrangement; an empty one is the default."""

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame. Called two to eight times per second while the view is visible."""

    def initial_focus(self) -> Widget | None:
        """The widget that gets the focus when the view opens."""
        return None

    def on_escape(self) -> bool:
        """Close whatever is open inside the view; False if nothing is, then Escape leaves it."""
        return False

    @property
    def selected_node(self) -> str | None:
        """The node under the cursor, for actions on nodes."""
        return None

    @property
    def wanted_nodes(self) -> frozenset[str]:
        """Nodes of which every sample is wanted; of all others, digests are enough."""
        return frozenset({self.selected_node} if self.selected_node else ())

    @property
    def selected_values(self) -> Mapping[str, object]:
        """What the user's commands may name of the thing under the cursor: node, rank, pid, gpu, job."""
        return {"node": self.selected_node, "job": self.selected_job}

    @property
    def selected_job(self) -> str | None:
        """The job to diagnose, as its ranks name it; None for all jobs."""
        return None

    @property
    def shown_job(self) -> str:
        """The job that the user chose to be shown, as its ranks name it; empty for the default."""
        return ""

    @property
    def selected_row(self) -> str:
        """The name of the row under the cursor of a list, for links; empty for none."""
        return ""

    def select_row(self, name: str) -> None:
        """Move the cursor to the row of that name as soon as it is listed."""

    @property
    def watched_job(self) -> str | None:
        """The job whose output is shown."""
        return None

    def focus_job(self, job: str) -> None:
        """Show this job, as its ranks name it."""

    def show_note(self, text: str) -> None:
        """Add a message to the shown output of a job."""

    def export_tables(self) -> Sequence[ExportTable]:
        """What can be exported now: the table, and the selection in it."""
        return ()

    def detail_provider(self) -> DetailProvider | None:
        """Details of the thing under the cursor."""
        return None


class CaptureView(View):
    """A view of captures, of one job or of all: has the progress of the running capture. Derived ones `_write`."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._progress = Progress(id=f"{self.scope}-progress")
        self._job = ""  # the chosen one; empty for the default
        self._shown: tuple[object, ...] = ()  # what was drawn

    def on_mount(self) -> None:
        self._progress.display = False

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame if it differs from the last one; before the first layout only keep it."""
        self._frame = frame
        if self.size.width <= 0:
            return
        self._show_progress(frame)
        basis = self._basis(frame)
        if basis != self._shown:
            self._shown = basis
            self._write(frame)

    def _basis(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """Everything that `_write` depends on."""
        raise NotImplementedError

    def _write(self, frame: ScreenSnapshot) -> None:
        raise NotImplementedError

    def _show_progress(self, frame: ScreenSnapshot) -> None:
        now = frame.capturing
        if now is None and self._progress.has_focus:
            self.screen.set_focus(self.initial_focus())
        self._progress.display = now is not None
        if now is not None:
            self._progress.show(now.verb, now.read, now.ranks, "ranks", round(now.elapsed_s, 1))

    def on_progress_cancelled(self, event: Progress.Cancelled) -> None:
        event.stop()
        self.console.captures.runner.cancel()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_again)

    @property
    def shown_job(self) -> str:
        """The chosen job; empty for the default."""
        return self._job

    def focus_job(self, job: str) -> None:
        """Show this job, as its ranks name it; empty for the default."""
        self._job = job
        self._show_again()


def node_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The node of that name."""
    node = frame.fleet.by_name.get(str(key))
    return node_detail(node, frame.nodes.get(node.name)) if node else None


def gpu_in(frame: ScreenSnapshot, name: str, place: int = -1, *, uuid: object = None) -> Detail | None:
    """The GPU of a node at that place, or with that uuid."""
    node, gpus = frame.fleet.by_name.get(name), frame.gpus.of(name)
    if uuid is not None:
        place = next((index for index, gpu in enumerate(gpus) if uuid_of(gpu) == uuid), -1)
    return gpu_detail(node, gpus[place]) if node is not None and 0 <= place < len(gpus) else None


def job_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The job that its ranks call so."""
    job = next((job for job in frame.jobs.jobs if job.job == key), None)
    if job is None:
        return None
    several = f"job:{quoted(job.job)}" if len(frame.jobs.jobs) > 1 else ""
    ranks = Destination("ranks", "ranks of the job", filter=several)
    return replace(job_detail(job), places=(ranks, *places_of(frame, (), job.job)))


def rank_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The rank whose row has that key, with its command line."""
    for row in (row for job in frame.jobs.jobs for row in job.rows):
        if row.key == key:
            rank = row.rank
            process = frame.processes.get((rank.node, rank.pid, rank.start_ticks)) if rank is not None else None
            places = (*places_of_rank(frame, row), *((events_of(rank.node),) if rank is not None else ()))
            own = (rank.node, rank.pid, rank.start_ticks) if rank is not None else None
            stacks = [
                stack for job in frame.hang for stack in job.stacks
                if (stack.node, stack.pid, stack.start_ticks) == own
            ]  # fmt: skip
            return replace(rank_detail(row, process, stacks), places=places)
    return None


def finding_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The open finding with that id, those culprits and that job."""
    findings = (finding for finding in frame.findings if (finding.id, finding.culprits, finding.job) == key)
    finding = next(findings, None)
    if finding is None:
        return None
    detail = finding_detail(finding)
    folds = fold_findings(frame.findings, frame.fleet.by_name)
    also = tuple(Fact("with others on", line.where) for line in folds if line.first is finding and line.where)
    return replace(detail, facts=(*detail.facts, *also), places=places_of(frame, finding.culprits, finding.job))


def event_in(frame: ScreenSnapshot, number: int) -> Detail | None:
    """The event of that number, while it is kept."""
    record = frame.events.find(number)
    if record is None:
        return None
    finding = record if isinstance(record, Finding) else None
    names, job = (finding.culprits, finding.job) if finding is not None else ((record.node,), None)
    return replace(event_detail(record, frame.now), places=places_of(frame, names, job))
