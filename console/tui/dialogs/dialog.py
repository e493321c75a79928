"""Dialogs over a view: the base of all of them, and those that only show text. Escape closes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from ...present.status import GLYPHS
from ...text.cells import clean
from ..keymap.actions import Action, bindings, in_scope, key_names
from ..models.detail import Detail
from ..snapshot import ScreenSnapshot
from ..views.base import DetailProvider

T = TypeVar("T")

#: Cells: of a label, and of the whole box at most.
_LABEL, _WIDTH = 14, 76
#: Lines and cells of the box that are not text.
_AROUND, _BESIDE = 6, 5


class Dialog(ModalScreen[T]):
    """A titled box; `keys` are shown in its border as (key, what it does). Subclasses yield their `content`."""

    def __init__(self, title: str = "", keys: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self._heading, self._keys = Static(Content.styled(title, "bold"), classes="dialog-title"), keys
        self.box = Vertical(classes="dialog")

    def compose(self) -> ComposeResult:
        self.show_keys(self._keys)
        with self.box:
            yield self._heading
            yield from self.content()

    def content(self) -> Iterable[Widget]:
        """The widgets below the title."""
        return ()

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Show these keys in the border."""
        parts = [((f" {key} ", "$accent"), (f"{label} ", "$muted")) for key, label in keys]
        self.box.border_subtitle = Content.assemble(*(part for pair in parts for part in pair))


class ScrollDialog(Dialog[None]):
    """Lines of text; the box is as high as they need, and scrolls when the screen is lower."""

    BINDINGS = bindings([*in_scope("dialog"), *(action for action in in_scope("app") if action.id == "app.reconnect")])

    def __init__(self) -> None:
        super().__init__(keys=[("Esc", "close")])
        self._text = Static(classes="dialog-text")
        self._scroll = VerticalScroll(self._text)

    def content(self) -> Iterable[Widget]:
        """The scrolling text."""
        yield self._scroll

    def on_mount(self) -> None:
        self.lay_out()

    def on_resize(self) -> None:
        self.call_after_refresh(self.lay_out)

    def lay_out(self) -> None:
        """Lay out title and lines for the present width; subclasses call `fill`."""

    def fill(self, title: Content, lines: Sequence[Content]) -> None:
        """Show these lines."""
        self._heading.update(title)
        self._text.update(Content("\n").join(lines))
        self._scroll.styles.height = max(1, min(len(lines), self.app.size.height - _AROUND))

    @property
    def room(self) -> int:
        """Cells available to a line."""
        return max(20, min(_WIDTH, int(self.app.size.width * 0.96)) - _BESIDE)

    def action_close(self) -> None:
        self.dismiss()

    def action_down(self) -> None:
        self._scroll.scroll_relative(y=1, animate=False)

    def action_up(self) -> None:
        self._scroll.scroll_relative(y=-1, animate=False)


class DetailDialog(ScrollDialog):
    """Everything known of one thing, refreshed with each frame; after the thing is gone, its last state."""

    def __init__(self, provider: DetailProvider, frame: ScreenSnapshot) -> None:
        super().__init__()
        self._provider = provider
        self._detail = provider(frame)

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Show the thing as of this frame."""
        detail = self._provider(frame)
        if detail is not None and detail != self._detail:
            self._detail = detail
            self.lay_out()

    def lay_out(self) -> None:
        """Lay out the detail."""
        detail: Detail | None = self._detail
        if detail is not None:
            title = Content.assemble((f"{GLYPHS[detail.status]} ", f"$status-{detail.status}"), (detail.title, "bold"))
            lines = [line for fact in detail.facts for line in _fact(fact.label, fact.text, fact.style, self.room)]
            self.fill(title, lines)


class KeysDialog(ScrollDialog):
    """Groups of keys with what they do."""

    def __init__(self, groups: Sequence[tuple[str, Sequence[Action]]]) -> None:
        super().__init__()
        self._groups = groups

    def lay_out(self) -> None:
        """Lay out the groups."""
        lines: list[Content] = []
        for title, actions in self._groups:
            lines += [Content("")] if lines else []
            lines.append(Content.styled(title, "bold $accent"))
            for action in actions:
                if action.keys:
                    lines += _fact(key_names(action.keys), action.help, "text", self.room)
        self.fill(Content.styled("Keys", "bold"), lines)


class LinesDialog(ScrollDialog):
    """Plain lines that can be replaced, as a progress line by its result; wrapped lines keep their indentation."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title_text, self._lines = title, list(lines)

    def show_lines(self, lines: Sequence[str]) -> None:
        """Replace the lines; does nothing after the dialog was closed."""
        self._lines = list(lines)
        if self.is_attached:
            self.lay_out()

    def lay_out(self) -> None:
        """Wrap the lines."""
        lines = [part for line in self._lines for part in self._wrapped(line)]
        self.fill(Content.styled(self._title_text, "bold"), lines)

    def _wrapped(self, line: str) -> list[Content]:
        text = clean(line.lstrip())
        indent = len(line) - len(line.lstrip())
        return [Content(" " * indent) + part for part in Content(text).wrap(max(10, self.room - indent))] or [Content()]


def _fact(label: str, text: str, style: str, width: int) -> list[Content]:
    """A label, and the text beside it on as many lines as it needs."""
    named = {"text": "$foreground", "accent": "$accent", "muted": "$muted"}
    written = Content.styled(text, named.get(style, f"$status-{style}"))
    lines = written.wrap(max(10, width - _LABEL - 1)) or [Content("")]
    indent = Content(" " * (_LABEL + 1))
    head = Content.styled(f"{label:<{_LABEL}} ", "$muted") + lines[0]
    return [head, *(indent + line for line in lines[1:])]
