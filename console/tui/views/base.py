"""What a view is: one screenful about one question, drawn from a frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from ..keymap.actions import Action, in_scope
from ..models.detail import Detail
from ..models.list_kind import Arrangement
from ..models.table_export import ExportTable
from ..snapshot import ScreenSnapshot

#: Tells the story of what was chosen, from each new frame; None once it is gone.
DetailProvider = Callable[[ScreenSnapshot], Detail | None]


class PaletteEntry(NamedTuple):
    """Something the palette offers while a view is on the screen: a name, a sentence, and what it does."""

    name: str
    tells: str
    run: Callable[[], None]


class NodePageRequested(Message):
    """Somebody wants to see everything known of that node: the app opens its page."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node


class GpuPageRequested(Message):
    """Somebody wants to see everything known of that GPU: the app opens its page."""

    def __init__(self, node: str, uuid: str) -> None:
        super().__init__()
        self.node, self.uuid = node, uuid


class CaptureViewRequested(Message):
    """Somebody wants to look at an earlier or later capture, at other threads of it, or at its ranks told apart."""

    def __init__(self, by: int = 0, *, turn_threads: bool = False, turn_granularity: bool = False) -> None:
        super().__init__()
        self.by, self.turn_threads, self.turn_granularity = by, turn_threads, turn_granularity


class CancelRequested(Message):
    """Somebody gives up the capture that is under way."""


class View(Container):
    """Derive one, and add its row to `table.VIEWS`. Nothing in it may block, own a timer or keep the store."""

    #: The scope of its actions in `keys.ACTIONS`.
    scope = ""
    #: Ids of the actions that people come here for: the footer begins with them, in the table's order.
    footer_actions: Collection[str] = ()

    @property
    def actions(self) -> list[Action]:
        """What its keys do, in the footer's order."""
        return in_scope(self.scope)

    def palette_entries(self) -> Iterable[PaletteEntry]:
        """What the palette has beside its actions."""
        return ()

    @property
    def arrangement(self) -> Arrangement:
        """What a person arranged here and wants to find again."""
        return Arrangement()

    def restore(self, arrangement: Arrangement) -> None:
        """Arrange it so; an empty arrangement is how the view begins."""

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Show this frame. Called while the view is the visible one, up to eight times a second."""

    def initial_focus(self) -> Widget | None:
        """The widget that has the focus when the view is opened."""
        return None

    def on_escape(self) -> bool:
        """Escape: close what is open inside. False where nothing is, and the way leads out of the view."""
        return False

    @property
    def selected_node(self) -> str | None:
        """The node that an action on a node means."""
        return None

    @property
    def selected_job(self) -> str | None:
        """The job that a diagnosis means, as its ranks name it; None for all of them."""
        return None

    @property
    def watched_job(self) -> str | None:
        """The job whose output is on the screen."""
        return None

    def focus_job(self, job: str) -> None:
        """Somebody comes from that job, as its ranks name it: show this one, where there are several."""

    def show_note(self, text: str) -> None:
        """Say something beside what is shown of a job's output."""

    def export_tables(self) -> Sequence[ExportTable]:
        """What can be saved of it, as it is now: its table, and what is selected in it."""
        return ()

    def detail_provider(self) -> DetailProvider | None:
        """The story of the thing under the cursor."""
        return None
