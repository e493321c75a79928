"""Dialogs over a view: the base of all of them, and those that only show text. Escape closes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from ...present.spans import GLYPHS
from ...text import logs
from ...text.cells import LIMIT, clean, width_of
from ..keymap.actions import Action, bindings, in_scope, key_names
from ..models.detail import Detail
from ..snapshot import ScreenSnapshot
from ..views.base import DetailProvider

if TYPE_CHECKING:
    from ..app import ConsoleApp

T = TypeVar("T")

#: Cells: of a label, and of the whole box at most.
_LABEL, _WIDTH = 14, 76
#: Lines and cells of the box that are not text.
_AROUND, _BESIDE = 6, 5
#: Seconds between two reads of the log.
_LOG_EVERY_S: Final = 0.5
_NO_LOG: Final = "No log is written: cannot write {}. To log elsewhere, start gconsole with --log-file FILE."
#: Style of a log line by its level; without one, that of the line before: a traceback.
_LEVELS: Final = {
    "DEBUG": "$muted", "INFO": "$foreground", "WARNING": "$status-warning", "ERROR": "$status-failed",
    "CRITICAL": "$status-failed",
}  # fmt: skip


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
    """Everything known of one thing, refreshed with each frame; after the thing is gone, its last state.

    Digits lead to the places of the thing: its node, rank, GPU or log.
    """

    BINDINGS = bindings(in_scope("ranks"))

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
            places = [line for number, place in enumerate(detail.places, 1)
                      for line in _fact(f"{number} opens", place.title, "accent", self.room)]  # fmt: skip
            self.fill(title, [*lines, *([Content("")] if places else []), *places])
            last = len(detail.places)
            keys = [("1" if last == 1 else f"1-{last}", "opens")] if last else []
            self.show_keys([*keys, *self._more_keys(), ("Esc", "close")])

    def _more_keys(self) -> Iterable[tuple[str, str]]:
        console = cast("ConsoleApp", self.app)
        if console.evaluations.is_allowed:
            yield from ((key_names(action.keys), action.label) for action in map(console.guide.own, in_scope("ranks")))

    def on_key(self, event: events.Key) -> None:
        """A digit closes the dialog and leads to the place of that number."""
        number = event.character if event.character is not None else ""
        places = self._detail.places if self._detail is not None else ()
        if number.isascii() and number.isdigit() and 1 <= int(number) <= len(places):
            event.stop()
            self.dismiss()
            console = cast("ConsoleApp", self.app)
            console.call_later(console.views.open_place, places[int(number) - 1])


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


class LogDialog(ScrollDialog):
    """The end of the log `file`, followed while open; not while scrolled up, so that the lines stay in place."""

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file
        self._lines: list[str] = []
        self._problem = "reading …" if file is not None else _NO_LOG.format(logs.default_path())
        self._is_reading = False

    def on_mount(self) -> None:
        if self._file is not None:
            self.run_worker(self._follow(self._file), name="log")
            self.set_interval(_LOG_EVERY_S, self._read_again, name="log")

    @property
    def room(self) -> int:
        """Cells available to a line."""
        return max(20, int(self.app.size.width * 0.96) - _BESIDE)

    def _read_again(self) -> None:
        if self._file is not None and not self._is_reading and self._scroll.is_vertical_scroll_end:
            self.run_worker(self._follow(self._file), name="log")

    async def _follow(self, file: Path) -> None:
        """Read the file in a thread, because a home directory on a network may hang, and show what changed."""
        self._is_reading = True
        try:
            lines, problem = await asyncio.to_thread(logs.tail, file), ""
        except OSError as error:
            lines, problem = [], f"Cannot read the log: {error.strerror or error}."
        finally:
            self._is_reading = False
        problem = problem or ("" if lines else "The log is empty.")
        if self.is_attached and (lines, problem) != (self._lines, self._problem):
            self._lines, self._problem = lines, problem
            self.lay_out()

    def lay_out(self) -> None:
        """Wrap the lines, coloured by level, and scroll to the last one."""
        name = clean(str(self._file)) if self._file is not None else ""
        name = name if width_of(name) <= self.room - 5 else f"…{name[-(self.room // 2 - 3) :]}"
        style, lines = "$foreground", []
        for line in [self._problem] if self._problem else self._lines:
            level = next((word for word in line[:64].split(" ")[:4] if word in _LEVELS), "")
            style = _LEVELS.get(level, style)
            pieces = [line[start : start + LIMIT] for start in range(0, len(line), LIMIT)]
            lines += [part for piece in pieces for part in Content.styled(clean(piece), style).wrap(self.room)]
        self.fill(Content.assemble(("Log  ", "bold"), (name, "$muted")), lines)
        self._scroll.scroll_end(animate=False)


def _fact(label: str, text: str, style: str, width: int) -> list[Content]:
    """A label, and the text beside it on as many lines as it needs."""
    named = {"text": "$foreground", "accent": "$accent", "muted": "$muted"}
    written = Content.styled(text, named.get(style, f"$status-{style}"))
    lines = written.wrap(max(10, width - _LABEL - 1)) or [Content("")]
    indent = Content(" " * (_LABEL + 1))
    head = Content.styled(f"{label:<{_LABEL}} ", "$muted") + lines[0]
    return [head, *(indent + line for line in lines[1:])]
