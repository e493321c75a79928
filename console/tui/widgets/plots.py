"""Plots: a metric over time, the same in one line, and the ranks' values with error bars."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ...present.spans import Span
from ...text.cells import clean, fit, width_of
from ..keymap.actions import bindings, in_scope
from ..models.plot import (
    AXIS_CELLS,
    Axis,
    Lane,
    Plot,
    axis_of,
    bar,
    bars,
    curve_lines,
    heading,
    short,
    ticks,
    time_axis,
)
from .bars import OneLine
from .line_view import CursorView, LineView

#: Lines that are not curve: the heading, the axis, the times.
_AROUND = 3


class HistoryPlot(LineView):
    """A metric over time, with axes and unit; unknown values are gaps.

    utilisation %  now 97  min 3  avg 81  max 100
     100 ┤⣀⡠⠤⠒⠉⠉⠉⠑⠒⠤⣀⡀        ⢀⡠⠔⠒⠉
      50 ┤                  ⡠⠊
       0 ┤                ⣀⠜
         └──────────────────────────────
         5 min ago                   now
    """

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("up", "down", "page_up", "page_down"))
    DEFAULT_CSS = "HistoryPlot { height: 8; min-height: 5; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._plot: Plot | None = None
        self._shown: object = None
        self._lines: list[list[Span]] = []

    def show(self, plot: Plot, version: object) -> None:
        """Draw this plot; does nothing while the version is the same."""
        if self._plot is None or version != self._shown:
            self._plot, self._shown = plot, version
            self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._plot is not None:
            self._lines = drawn(self._plot, self.size.width, self.size.height)
        self.changed()

    def line_count(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        return self._lines[y]

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        return tuple(self._lines[y])


def drawn(plot: Plot, width: int, height: int) -> list[list[Span]]:
    """The whole picture in `height` lines of at most `width` cells, two of them curve where there is less room."""
    curve, room = max(2, height - _AROUND), max(0, width - AXIS_CELLS)
    times = [Span(" " * AXIS_CELLS), Span(time_axis(len(plot.values) * plot.step_s, room), "muted")]
    has_middle = curve >= 5 and curve % 2 == 1
    return [
        heading(plot, with_now=True, width=width),
        *curve_lines(plot, room, curve, middle=has_middle),
        *([times] if room else []),
    ]


_TITLE, _VALUE = 14, 10


class Sparkline(OneLine):
    """The last minutes of one metric in a line, and its value now.

    utilisation  ⠤⠤⠤⠒⠉⠉⠑⠒⠤⠤⢄  ⢀⡠⠤⠤⠒⠉⠉   97 %
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._plot: Plot | None = None
        self._version: object = None

    def show(self, plot: Plot, version: object) -> None:
        """Draw this plot; does nothing while the version is the same."""
        if self._plot is None or version != self._version:
            self._plot, self._version = plot, version
            self.refresh()

    def spans(self) -> list[Span]:
        """The line: the curve takes what the title and the value leave."""
        plot, width = self._plot, self.size.width
        if plot is None:
            return []
        title = min(_TITLE, width // 4)
        room = max(0, width - title - _VALUE - 2)
        value = f"{short(plot.now)} {plot.unit}"
        return [
            Span(fit(plot.title, title), "muted"), Span(" "),
            Span(bars(plot.values, room, plot.low, plot.top), "accent"), Span(" "),
            Span(fit(value, _VALUE, "right"), "text" if plot.now is not None else "unknown"),
        ]  # fmt: skip


_GAP = 2


class Lanes(CursorView):
    """One lane per rank with its value and error bar on a common axis.

    rank   late          0                25               50 ms
    137    41.2 ±0.4 ms  ·····························├─▲─┤
    12      3.1 ±2.8 ms  ├─●──┤
    40           –       ◌ unknown
    """

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
