"""`LineReport`: prepared lines; those with a key can be visited by the cursor and opened.

✖ node018   auth: the key was refused
  try       ssh-add, or identity_file in hosts.toml
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ...present.spans import Line, Span
from ..keymap.actions import bindings, in_scope
from .line_view import LineView


class LineReport(LineView):
    """A few lines up to thousands. `show` replaces them; only lines that differ are painted."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: tuple[Line, ...] = ()
        self._key: Hashable | None = None

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines from now on; the cursor stays with its key."""
        self.lines = tuple(lines)
        if self._key is not None and self._at(self._key) is None:
            self._key = None
        if self._key is None:
            self._key = next((line.key for line in self.lines if line.key is not None), None)
        self.changed()

    @property
    def selected(self) -> Hashable | None:
        """The key under the cursor."""
        return self._key

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

    def _at(self, key: Hashable) -> int | None:
        return next((y for y, line in enumerate(self.lines) if line.key == key), None)

    def _stops(self) -> list[int]:
        """The first line of each key."""
        stops: dict[Hashable, int] = {}
        for y, line in enumerate(self.lines):
            if line.key is not None:
                stops.setdefault(line.key, y)
        return list(stops.values())

    def _move(self, by: int) -> None:
        stops = self._stops()
        if not stops:
            self.scroll_relative(y=by, animate=False)
            return
        here = self._at(self._key)
        place = stops.index(here) if here in stops else 0
        self._stand(stops[min(max(place + by, 0), len(stops) - 1)])

    def _stand(self, y: int) -> None:
        self._key = self.lines[y].key
        self.show_line(y)
        self.changed()
        self.post_message(self.Moved(self))

    def action_down(self) -> None:
        self._move(1)

    def action_up(self) -> None:
        self._move(-1)

    def action_page_down(self) -> None:
        self._move(self.page)

    def action_page_up(self) -> None:
        self._move(-self.page)

    def action_top(self) -> None:
        self._move(-len(self.lines))

    def action_bottom(self) -> None:
        self._move(len(self.lines))

    def action_open(self) -> None:
        if self._key is not None:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y
        if y < len(self.lines) and self.lines[y].key is not None:
            again = self.lines[y].key == self._key and event.chain > 1
            self._stand(y)
            if again:
                self.action_open()
