"""`Lanes`: one lane a rank, its figure where it stands on a common axis, with its error bar.

    rank   late          0                25               50 ms
    137    41.2 ±0.4 ms  ·····························├─▲─┤
    12      3.1 ±2.8 ms  ├─●──┤
    40           –       ◌ unknown
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ..keys import bindings, in_scope
from ..models.lane import Lane, bar, ticks, top_of
from ..models.spans import Span
from ..text import clean, fit, width_of
from .line_view import LineView

_GAP = 2


class Lanes(LineView):
    """`show` gives it lanes in the order in which they are drawn; of thousands only those on the screen become text."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))
    fixed = 1

    def __init__(self, label: str, figure: str, unit: str, *, id: str | None = None) -> None:
        """`label` and `figure` head their columns; `unit` is that of the axis."""
        super().__init__(id=id)
        self._heads, self._unit = (label, figure), unit
        self.lanes: tuple[Lane, ...] = ()
        self._at = 0
        self._layout: tuple[int, int, float] = (0, 0, 1.0)  # cells of the label, of the figure; the end of the axis

    def show(self, lanes: Sequence[Lane]) -> None:
        """Draw these; the cursor stays with its key."""
        key = self.selected
        self.lanes = tuple(lanes)
        found = next((place for place, lane in enumerate(self.lanes) if lane.key == key), None)
        self._at = min(self._at, max(0, len(self.lanes) - 1)) if found is None else found
        self._measure()
        self.changed()

    @property
    def selected(self) -> Hashable | None:
        """The key under the cursor."""
        return self.lanes[self._at].key if self.lanes else None

    def _measure(self) -> None:
        third = max(4, self.size.width // 3)
        label = max((width_of(clean(lane.label)) for lane in self.lanes), default=0)
        figure = max((width_of(lane.figure) for lane in self.lanes), default=0)
        label, figure = max(label, width_of(self._heads[0])), max(figure, width_of(self._heads[1]))
        layout = (min(label, third), min(figure, third), top_of(self.lanes))
        if layout != self._layout:
            self._layout = layout
            self.forget()

    def on_resize(self, event: events.Resize) -> None:
        self._measure()

    # -- painting ----------------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        label, figure, _ = self._layout
        return max(0, self.size.width - 1 - label - figure - 2 * _GAP)

    def line_count(self) -> int:
        return len(self.lanes)

    def version(self, y: int) -> Hashable:
        return self.lanes[y]

    def has_cursor(self, y: int) -> bool:
        return y == self._at and bool(self.lanes)

    def heading(self, y: int) -> Sequence[Span]:
        label, figure, top = self._layout
        gap = " " * _GAP
        heads = f"{fit(self._heads[0], label)}{gap}{fit(self._heads[1], figure, 'right')}{gap}"
        return [Span(heads, "accent"), Span(ticks(self._room, top, self._unit), "muted")]

    def line(self, y: int) -> Sequence[Span]:
        lane, (label, figure, top) = self.lanes[y], self._layout
        gap = Span(" " * _GAP)
        name, value = fit(clean(lane.label), label), fit(clean(lane.figure), figure, "right")
        return [Span(name, "text"), gap, Span(value, lane.status), gap, *bar(lane, self._room, top)]

    # -- moving ------------------------------------------------------------------------------------------------------

    def _stand(self, y: int) -> None:
        if self.lanes:
            self._at = min(max(y, 0), len(self.lanes) - 1)
            self.show_line(self._at)
            self.changed()
            self.post_message(self.Moved(self))

    def action_down(self) -> None:
        self._stand(self._at + 1)

    def action_up(self) -> None:
        self._stand(self._at - 1)

    def action_page_down(self) -> None:
        self._stand(self._at + self.page)

    def action_page_up(self) -> None:
        self._stand(self._at - self.page)

    def action_top(self) -> None:
        self._stand(0)

    def action_bottom(self) -> None:
        self._stand(len(self.lanes) - 1)

    def action_open(self) -> None:
        if self.lanes:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y - self.fixed
        if event.y >= self.fixed and y < len(self.lanes):
            again = y == self._at and event.chain > 1
            self._stand(y)
            if again:
                self.action_open()
