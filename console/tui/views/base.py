"""What a view is: one screenful about one question, drawn from a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from ..models.sheets import Sheet
from ..models.stories import Story
from ..watch import Frame

#: Tells the story of what was chosen, from each new frame; None once it is gone.
Teller = Callable[[Frame], Story | None]


class NodeWanted(Message):
    """Somebody wants to see everything known of that node: the app opens its page."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node


class View(Container):
    """Derive one, and add its row to `table.VIEWS`. Nothing in it may block, own a timer or keep the store."""

    #: The scope of its actions in `keys.ACTIONS`.
    scope = ""

    def look(self, frame: Frame) -> None:
        """Show this frame. Called while the view is the visible one, up to eight times a second."""

    def home(self) -> Widget | None:
        """The widget that has the focus when the view is opened."""
        return None

    def climb(self) -> bool:
        """Escape: close what is open inside. False where nothing is, and the way leads out of the view."""
        return False

    @property
    def selected_node(self) -> str | None:
        """The node that an action on a node means."""
        return None

    def sheets(self) -> Sequence[Sheet]:
        """What can be saved of it, as it is now: its table, and what is selected in it."""
        return ()

    def teller(self) -> Teller | None:
        """The story of the thing under the cursor."""
        return None
