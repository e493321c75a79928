"""`LineView`: draws only the visible lines, and of those only the changed ones; `CursorView` adds a line cursor.

The base of every scrolling widget here (Textual's Line API). A subclass returns the number of lines, the spans of line
`y`, and a version of line `y` that changes with its look; `changed()` repaints the lines whose version changed. A
changed cell of a DataTable redraws the whole table; here it redraws a line.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from textual import events
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ...present.spans import Line, Span
from ..keymap.actions import bindings, in_scope
from .painting import Painting


class LineView(ScrollView, Painting, can_focus=True, inherit_bindings=False):
    """Lines with an optional cursor. `fixed` lines at the top do not scroll (a heading)."""

    DEFAULT_CSS = """
    LineView { height: 1fr; width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """

    fixed = 0

    @dataclass
    class Opened(Message):
        """Enter, or a second click, on the thing under the cursor."""

        view: LineView

    @dataclass
    class Moved(Message):
        """The cursor moved."""

        view: LineView

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._painted: dict[int, tuple[Hashable, Strip]] = {}  # content line → (version, strip)
        self._rows = 0  # scrolling lines that fitted at the last resize
        #: First visible line before and after the last scroll that kept the cursor visible; see `_keep_visible`.
        self._kept = (0, 0)

    def line_count(self) -> int:
        """Number of scrolling lines, without the fixed ones."""
        raise NotImplementedError

    def line(self, y: int) -> Sequence[Span]:
        """Spans of scrolling line `y`, 0 <= y < line_count()."""
        raise NotImplementedError

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` may look different, apart from the cursor."""
        raise NotImplementedError

    def heading(self, y: int) -> Sequence[Span]:
        """Fixed line `y`."""
        return ()

    def has_cursor(self, y: int) -> bool:
        """Whether line `y` is drawn as the one with the cursor."""
        return False

    @property
    def selected(self) -> object:
        """What is under the cursor; None without any."""
        return None

    @property
    def cursor_line(self) -> int | None:
        """The line that a resize keeps visible; None without a cursor."""
        return None

    @property
    def cursor_place(self) -> Offset | None:
        """Where the cursor line begins on the screen; None without a visible one."""
        line = self.cursor_line
        first, last = self._visible()
        if line is None or not first <= line < last:
            return None
        return self.content_region.offset + Offset(0, line - first + self.fixed)

    def step(self, by: int) -> None:
        """Move the cursor `by` lines down; without a cursor, scroll."""
        self.scroll_relative(y=by, animate=False)

    def changed(self) -> None:
        """Apply the new size, and repaint the visible lines whose version changed."""
        size = Size(self.size.width, self.line_count() + self.fixed)
        if size != self.virtual_size:
            self.virtual_size = size
        first, last = self._visible()
        stale = [y for y in range(first, last) if self._is_stale(y)]
        for start, count in _runs(stale):
            self.refresh(Region(0, start - first + self.fixed, self.size.width, count))

    def forget(self) -> None:
        """Repaint everything after a change of width, theme or selection."""
        self._painted.clear()
        self.refresh()

    def _visible(self) -> tuple[int, int]:
        """First visible line, and the one after the last; lines beyond the content are blank."""
        first = self.scroll_offset.y
        return first, first + max(0, self.size.height - self.fixed)

    def _is_visible(self, y: int | None) -> bool:
        """Whether line `y` is visible, or was before a resize that is not yet processed."""
        first = self.scroll_offset.y
        return y is not None and first <= y < first + self._rows

    def _is_stale(self, y: int) -> bool:
        painted = self._painted.get(y)
        return painted is None or painted[0] != self._version(y)

    def _version(self, y: int) -> Hashable:
        if y >= self.line_count():
            return None
        return self.version(y), self._ground(y)

    def _ground(self, y: int) -> str:
        if not self.has_cursor(y):
            return ""
        return "cursor" if self.has_focus else "cursor-blurred"

    def render_line(self, y: int) -> Strip:
        width, selection = self.size.width, self.text_selection
        if y < self.fixed:
            return self.located(self.strip(self.heading(y), width, selection=selection, y=y), y)
        line = self.scroll_offset.y + y - self.fixed
        version = self._version(line)
        painted = self._painted.get(line)
        if painted is not None and painted[0] == version and painted[1].cell_length == width:
            return self.located(painted[1], line + self.fixed)
        strip = self.drawn(line, width, selection)
        if len(self._painted) > 4 * max(50, self.size.height):
            self._painted.clear()
        self._painted[line] = (version, strip)
        return self.located(strip, line + self.fixed)

    def drawn(self, y: int, width: int, selection: Selection | None) -> Strip:
        """Scrolling line `y` as a strip; blank beyond the content."""
        spans = self.line(y) if y < self.line_count() else ()
        return self.strip(spans, width, self._ground(y), selection, y + self.fixed)

    def notify_style_update(self) -> None:
        """Repaint everything in the new theme."""
        super().notify_style_update()
        self._painted.clear()

    def on_resize(self, event: events.Resize) -> None:
        self._painted.clear()
        self.virtual_size = Size(self.size.width, self.line_count() + self.fixed)
        rows, cursor = self.size.height - self.fixed, self.cursor_line
        if rows <= 0:
            return
        was_visible, self._rows = self._is_visible(cursor), rows
        if cursor is not None and was_visible:
            self._keep_visible(cursor)

    def on_focus(self) -> None:
        self.changed()

    def on_blur(self) -> None:
        self.changed()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse."""
        lines = ["".join(span.text for span in self.heading(y)) for y in range(self.fixed)]
        lines += ["".join(span.text for span in self.line(y)).rstrip() for y in range(self.line_count())]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Repaint the lines whose selection changed."""
        self.forget()

    def show_line(self, y: int) -> None:
        """Scroll line `y` into view, as little as needed."""
        first, last = self._visible()
        if first == last:
            return  # no line fits, such as under a note that fills the view
        if y < first:
            self.scroll_to(y=y, animate=False, immediate=True, force=True)
        elif y >= last:
            self.scroll_to(y=y - (last - first) + 1, animate=False, immediate=True, force=True)

    def _keep_visible(self, y: int) -> None:
        """Scroll line `y` into view after a change of size or lines.

        As little as needed from where the view was before such changes: one change arrives in steps, whose number
        and sizes depend on timing, and the outcome must not.
        """
        first, last = self._visible()
        if first == last:
            return
        before, after = self._kept
        if after != first:  # scrolled by a key or the wheel since
            before = first
        top = min(max(before, y - (last - first) + 1), y)
        if top != first:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._kept = (before, self.scroll_offset.y)

    @property
    def page(self) -> int:
        """Lines a page key moves."""
        return max(1, self.size.height - self.fixed - 1)

    def action_down(self) -> None:
        self.step(1)

    def action_up(self) -> None:
        self.step(-1)

    def action_page_down(self) -> None:
        self.step(self.page)

    def action_page_up(self) -> None:
        self.step(-self.page)

    def action_top(self) -> None:
        self.step(-self.line_count())

    def action_bottom(self) -> None:
        self.step(self.line_count())

    def action_open(self) -> None:
        if self.selected is not None:
            self.post_message(self.Opened(self))


def _runs(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive lines as (first, count)."""
    runs: list[tuple[int, int]] = []
    for y in lines:
        if runs and y == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((y, 1))
    return runs


class CursorView(LineView):
    """A LineView with a cursor line; without lines the keys do nothing."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._cursor = 0

    def has_cursor(self, y: int) -> bool:
        """Whether line `y` has the cursor."""
        return y == self._cursor and y < self.line_count()

    @property
    def cursor_line(self) -> int | None:
        """The line of the cursor; None without lines."""
        return self._cursor if self._cursor < self.line_count() else None

    def place_cursor(self, y: int) -> None:
        """Move the cursor to line `y`, limited to the first and last line."""
        if self.line_count():
            self._cursor = max(0, min(y, self.line_count() - 1))
            self.show_line(self._cursor)
            self.changed()
            self.post_message(self.Moved(self))

    def clicked(self, y: int, event: events.Click) -> None:
        """Move the cursor to the clicked line; a second click opens it."""
        again = y == self._cursor and event.chain > 1
        self.place_cursor(y)
        if again:
            self.action_open()

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y - self.fixed
        if event.y >= self.fixed and y < self.line_count():
            self.clicked(y, event)

    def step(self, by: int) -> None:
        """Move the cursor `by` lines down."""
        self.place_cursor(self._cursor + by)


class LineReport(LineView):
    """A few lines up to thousands. `show` replaces them; only lines that differ are painted."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: tuple[Line, ...] = ()
        self._key: Hashable | None = None

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines from now on; the cursor stays with its key."""
        was_visible = self._is_visible(self.cursor_line)
        self.lines = tuple(lines)
        if self._key is not None and self._at(self._key) is None:
            self._key = None
        if self._key is None:
            self._key = next((line.key for line in self.lines if line.key is not None), None)
        self.changed()
        cursor = self.cursor_line
        if cursor is not None and was_visible:
            self._keep_visible(cursor)

    @property
    def selected(self) -> Hashable | None:
        """The key under the cursor."""
        return self._key

    def select(self, key: Hashable) -> None:
        """Move the cursor to the first line of that key."""
        y = self._at(key)
        if y is not None:
            self._stand(y)

    def line_count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        return self.lines[y].spans

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        return self.lines[y]

    def has_cursor(self, y: int) -> bool:
        """Whether line `y` has the cursor."""
        return self.has_focus and y < len(self.lines) and self._key is not None and self.lines[y].key == self._key

    @property
    def cursor_line(self) -> int | None:
        """The first line of the cursor's key; None without the focus."""
        return self._at(self._key) if self.has_focus and self._key is not None else None

    def _at(self, key: Hashable) -> int | None:
        return next((y for y, line in enumerate(self.lines) if line.key == key), None)

    def _stops(self) -> list[int]:
        """The first line of each key."""
        stops: dict[Hashable, int] = {}
        for y, line in enumerate(self.lines):
            if line.key is not None:
                stops.setdefault(line.key, y)
        return list(stops.values())

    def step(self, by: int) -> None:
        """Move the cursor `by` keys down; without keys, scroll."""
        stops = self._stops()
        if not stops:
            super().step(by)
            return
        here = self._at(self._key)
        place = stops.index(here) if here in stops else 0
        self._stand(stops[min(max(place + by, 0), len(stops) - 1)])

    def _stand(self, y: int) -> None:
        self._key = self.lines[y].key
        self.show_line(y)
        self.changed()
        self.post_message(self.Moved(self))

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y
        if y < len(self.lines) and self.lines[y].key is not None:
            again = self.lines[y].key == self._key and event.chain > 1
            self._stand(y)
            if again:
                self.action_open()
