"""`Lanes`: one lane per rank with its value and error bar on a common axis.

rank   late          0                25               50 ms
137    41.2 ±0.4 ms  ·····························├─▲─┤
12      3.1 ±2.8 ms  ├─●──┤
40           –       ◌ unknown
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ...present.spans import Span
from ...text.cells import clean, fit, width_of
from ..models.error_bar import Axis, Lane, axis_of, bar, ticks
from .line_view import CursorView

_GAP = 2


class Lanes(CursorView):
    """`show` sets the lanes, in display order."""

    fixed = 1

    def __init__(self, label: str, figure: str, unit: str, *, id: str | None = None) -> None:
        """`label` and `figure` head their columns; `unit` is that of the axis."""
        super().__init__(id=id)
        self._heads, self._unit = (label, figure), unit
        self.lanes: tuple[Lane, ...] = ()
        self._layout: tuple[int, int, Axis] = (0, 0, Axis(1.0))  # cells of the label, of the figure; the axis

    def show(self, lanes: Sequence[Lane]) -> None:
        """Show these lanes; the cursor stays on its key."""
        key = self.selected
        self.lanes = tuple(lanes)
        index = next((place for place, lane in enumerate(self.lanes) if lane.key == key), None)
        self._cursor = min(self._cursor, max(0, len(self.lanes) - 1)) if index is None else index
        self._measure()
        self.changed()

    @property
    def selected(self) -> Hashable | None:
        """The key under the cursor."""
        return self.lanes[self._cursor].key if self.lanes else None

    def _measure(self) -> None:
        third = max(4, self.size.width // 3)
        label = max((width_of(clean(lane.label)) for lane in self.lanes), default=0)
        figure = max((width_of(lane.figure) for lane in self.lanes), default=0)
        label, figure = max(label, width_of(self._heads[0])), max(figure, width_of(self._heads[1]))
        layout = (min(label, third), min(figure, third), axis_of(self.lanes))
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
        """Number of lines."""
        return len(self.lanes)

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        return self.lanes[y]

    def heading(self, y: int) -> Sequence[Span]:
        """Heading line `y`."""
        label, figure, axis = self._layout
        gap = " " * _GAP
        heads = f"{fit(self._heads[0], label)}{gap}{fit(self._heads[1], figure, 'right')}{gap}"
        return [Span(heads, "accent"), Span(ticks(self._room, axis, self._unit), "muted")]

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        lane, (label, figure, axis) = self.lanes[y], self._layout
        gap = Span(" " * _GAP)
        name, value = fit(clean(lane.label), label), fit(clean(lane.figure), figure, "right")
        return [Span(name, "text"), gap, Span(value, lane.status), gap, *bar(lane, self._room, axis)]
