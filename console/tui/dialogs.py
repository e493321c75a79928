"""What opens over a view: the story of one thing, and the keys. Escape closes; nothing here ever steals the focus."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from .keys import Action, bindings, in_scope, key_names
from .models.stories import Story
from .status import GLYPHS
from .views.base import Teller
from .watch import Frame

_LABEL = 14


class Dialog(ModalScreen[None]):
    """A titled box that scrolls."""

    BINDINGS = bindings(in_scope("dialog"))

    def __init__(self) -> None:
        super().__init__()
        self._title = Static(classes="dialog-title")
        self._text = Static(classes="dialog-text")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._title
            with VerticalScroll():
                yield self._text
            yield Static(Content.assemble(("Esc", "$accent"), (" close", "$muted")), classes="dialog-foot")

    def look(self, frame: Frame) -> None:
        """Show this frame, where the dialog is about something that changes."""

    def action_close(self) -> None:
        self.dismiss()


class StoryDialog(Dialog):
    """Everything known of one thing, told anew with each frame."""

    def __init__(self, tell: Teller, frame: Frame) -> None:
        super().__init__()
        self._tell = tell
        self._told: Story | None = None
        self._frame = frame

    def on_mount(self) -> None:
        self.look(self._frame)

    def look(self, frame: Frame) -> None:
        story = self._tell(frame)
        if story is None or story == self._told:
            return  # what is gone stays on the screen as it was
        self._told = story
        style = f"$status-{story.status}"
        self._title.update(Content.assemble((f"{GLYPHS[story.status]} ", style), (story.title, "bold")))
        self._text.update(Content("\n").join(_fact(fact.label, fact.text, fact.style) for fact in story.facts))


def _fact(label: str, text: str, style: str) -> Content:
    named = {"text": "$foreground", "accent": "$accent", "muted": "$muted"}
    return Content.assemble((f"{label:<{_LABEL}} ", "$muted"), (text, named.get(style, f"$status-{style}")))


class KeysDialog(Dialog):
    """The keys that work where the focus is, then those that work everywhere."""

    def __init__(self, groups: Sequence[tuple[str, Sequence[Action]]]) -> None:
        super().__init__()
        self._groups = groups

    def on_mount(self) -> None:
        self._title.update(Content.styled("Keys", "bold"))
        parts: list[Content] = []
        for title, actions in self._groups:
            parts += [Content(""), Content.styled(title, "bold $accent")] if parts else [Content.styled(title, "bold $accent")]
            parts += [_fact(key_names(action.keys), action.tells, "text") for action in actions if action.keys]
        self._text.update(Content("\n").join(parts))
