"""What opens over a view: the story of one thing, and the keys. Escape closes; nothing here ever steals the focus."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...present.status import GLYPHS
from ..keymap.actions import Action, bindings, in_scope, key_names
from ..models.detail import Detail
from ..snapshot import Frame
from ..views.base import DetailProvider

#: Cells of a label; of the whole box at most; lines and cells of the box that are not text.
_LABEL, _WIDTH = 14, 76
_AROUND, _BESIDE = 6, 5


class Dialog(ModalScreen[None]):
    """A titled box of lines, as high as it needs to be, that scrolls where that is more than the screen has."""

    BINDINGS = bindings([*in_scope("dialog"), *(action for action in in_scope("app") if action.id == "app.reconnect")])

    def __init__(self) -> None:
        super().__init__()
        self._title = Static(classes="dialog-title")
        self._text = Static(classes="dialog-text")
        self._scroll = VerticalScroll(self._text)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = Content.assemble((" Esc ", "$accent"), ("close ", "$muted"))
            yield self._title
            yield self._scroll

    def on_resize(self) -> None:
        self.call_after_refresh(self.write)

    def look(self, frame: Frame) -> None:
        """Show this frame, where the dialog is about something that changes."""

    def write(self) -> None:
        """Put title and lines where they belong, for the present width; a subclass calls `fill`."""

    def fill(self, title: Content, lines: Sequence[Content]) -> None:
        """Show these lines."""
        self._title.update(title)
        self._text.update(Content("\n").join(lines))
        self._scroll.styles.height = max(1, min(len(lines), self.app.size.height - _AROUND))

    @property
    def room(self) -> int:
        """Cells a line may take."""
        return max(20, min(_WIDTH, int(self.app.size.width * 0.96)) - _BESIDE)

    def action_close(self) -> None:
        self.dismiss()

    def action_down(self) -> None:
        self._scroll.scroll_relative(y=1, animate=False)

    def action_up(self) -> None:
        self._scroll.scroll_relative(y=-1, animate=False)


class StoryDialog(Dialog):
    """Everything known of one thing, told anew with each frame."""

    def __init__(self, tell: DetailProvider, frame: Frame) -> None:
        super().__init__()
        self._tell = tell
        self._told: Detail | None = None
        self._frame = frame

    def on_mount(self) -> None:
        self.look(self._frame)

    def look(self, frame: Frame) -> None:
        story = self._tell(frame)
        if story is not None and story != self._told:  # what is gone stays on the screen as it was
            self._told = story
            self.write()

    def write(self) -> None:
        story = self._told
        if story is None:
            return
        title = Content.assemble((f"{GLYPHS[story.status]} ", f"$status-{story.status}"), (story.title, "bold"))
        lines = [line for fact in story.facts for line in _fact(fact.label, fact.text, fact.style, self.room)]
        self.fill(title, lines)


class KeysDialog(Dialog):
    """The keys that work where the focus is, then those that work everywhere."""

    def __init__(self, groups: Sequence[tuple[str, Sequence[Action]]]) -> None:
        super().__init__()
        self._groups = groups

    def on_mount(self) -> None:
        self.write()

    def write(self) -> None:
        lines: list[Content] = []
        for title, actions in self._groups:
            lines += [Content("")] if lines else []
            lines.append(Content.styled(title, "bold $accent"))
            for action in actions:
                if action.keys:
                    lines += _fact(key_names(action.keys), action.help, "text", self.room)
        self.fill(Content.styled("Keys", "bold"), lines)


def _fact(label: str, text: str, style: str, width: int) -> list[Content]:
    """A label, and the text beside it on as many lines as it needs."""
    named = {"text": "$foreground", "accent": "$accent", "muted": "$muted"}
    written = Content.styled(text, named.get(style, f"$status-{style}"))
    lines = written.wrap(max(10, width - _LABEL - 1)) or [Content("")]
    indent = Content(" " * (_LABEL + 1))
    head = Content.styled(f"{label:<{_LABEL}} ", "$muted") + lines[0]
    return [head, *(indent + line for line in lines[1:])]
