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

_LABEL, _WIDTH = 14, 70


class Dialog(ModalScreen[None]):
    """A titled box that scrolls."""

    BINDINGS = bindings(in_scope("dialog"))

    def __init__(self) -> None:
        super().__init__()
        self._title = Static(classes="dialog-title")
        self._text = Static(classes="dialog-text")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = Content.assemble((" Esc ", "$accent"), ("close ", "$muted"))
            yield self._title
            with VerticalScroll():
                yield self._text

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
        if story is not None and story != self._told:  # what is gone stays on the screen as it was
            self._told = story
            self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        story = self._told
        if story is None:
            return
        style = f"$status-{story.status}"
        self._title.update(Content.assemble((f"{GLYPHS[story.status]} ", style), (story.title, "bold")))
        width = self._text.size.width or _WIDTH
        self._text.update(Content("\n").join(_fact(fact.label, fact.text, fact.style, width) for fact in story.facts))


def _fact(label: str, text: str, style: str, width: int) -> Content:
    """A label, and the text beside it on as many lines as it needs."""
    named = {"text": "$foreground", "accent": "$accent", "muted": "$muted"}
    written = Content.styled(text, named.get(style, f"$status-{style}"))
    lines = written.wrap(max(20, width - _LABEL - 1)) or [Content("")]
    indent = Content(" " * (_LABEL + 1))
    head = Content.styled(f"{label:<{_LABEL}} ", "$muted") + lines[0]
    return Content("\n").join([head, *(indent + line for line in lines[1:])])


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
            parts += [_fact(key_names(action.keys), action.tells, "text", _WIDTH) for action in actions if action.keys]
        self._text.update(Content("\n").join(parts))
