"""`HistoryPlot`: one figure over time, with its axes and its unit; what is unknown is a gap.

utilisation %  now 97  min 3  avg 81  max 100
 100 ┤⣀⡠⠤⠒⠉⠉⠉⠑⠒⠤⣀⡀        ⢀⡠⠔⠒⠉
  50 ┤                  ⡠⠊
   0 ┤                ⣀⠜
     └──────────────────────────────
     5 min ago                   now
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ...present.spans import Span
from ..keymap.actions import bindings, in_scope
from ..models.plot import Plot, braille, short, time_axis
from .line_view import LineView

#: Cells left of the curve: a label, a blank, the axis.
_AXIS = 8
#: Lines that are not curve: the heading, the axis, the times.
_AROUND = 3


class HistoryPlot(LineView):
    """`show` gives it a plot, and a version that differs whenever the plot does. It fills the room it has."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("up", "down", "page_up", "page_down"))
    DEFAULT_CSS = "HistoryPlot { height: 8; min-height: 5; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._plot: Plot | None = None
        self._shown: object = None
        self._lines: list[list[Span]] = []

    def show(self, plot: Plot, version: object) -> None:
        """Draw this from now on; nothing is computed while the version is the same."""
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

    def action_down(self) -> None:
        self.scroll_relative(y=1, animate=False)

    def action_up(self) -> None:
        self.scroll_relative(y=-1, animate=False)

    def action_page_down(self) -> None:
        self.scroll_relative(y=self.page, animate=False)

    def action_page_up(self) -> None:
        self.scroll_relative(y=-self.page, animate=False)


def drawn(plot: Plot, width: int, height: int) -> list[list[Span]]:
    """The whole picture in `height` lines of at most `width` cells, two of them curve where there is less room."""
    curve, room = max(2, height - _AROUND), max(0, width - _AXIS)
    lines = [_heading(plot)]
    labels = {0: plot.top, curve - 1: plot.low}
    if curve >= 5 and curve % 2:
        labels[curve // 2] = (plot.top + plot.low) / 2
    for y, dots in enumerate(braille(plot.values, room, curve, plot.low, plot.top, plot.spread)):
        label = short(labels[y]) if y in labels else ""
        tick = "┤" if y in labels else "│"
        lines.append([Span(f"{label:>{_AXIS - 2}} ", "muted"), Span(tick, "rule"), Span(dots, "accent")])
    lines.append([Span(" " * (_AXIS - 1)), Span("└" + "─" * room, "rule")])
    if room:
        lines.append([Span(" " * _AXIS), Span(time_axis(len(plot.values) * plot.step_s, room), "muted")])
    return lines


def _heading(plot: Plot) -> list[Span]:
    spans = [Span(plot.title, "strong"), Span(f" {plot.unit}", "muted")]
    for name, value in zip(("now", "min", "avg", "max"), (plot.now, *plot.summary()), strict=True):
        spans += [Span(f"  {name} ", "muted"), Span(short(value), "text" if value is not None else "unknown")]
    return spans
