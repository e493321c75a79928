"""`HeatMap`: one cell per GPU, one row per node, as many columns of nodes as fit.

    node017   98  97 100  99  12  98  97  99     wide: numbers on their colour
    017  ▇▇▇▇▼▇▇▇  033✖ auth      049  ▇▇▇▇▇▇▇▇   narrow: bars

▼ or ▲ marks a value far from those of its peers: after the number, or instead of the bar.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Final, get_args

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip

from ...present.spans import GLYPHS, STYLES, Span, Status
from ...records.metrics import HeatScale
from ...text.cells import fit
from ..keymap.actions import bindings, in_scope
from ..models.heat_map import GAP, LEVELS, HeatCell, HeatRow, plan
from .line_view import LineView

_APART = attrgetter("apart")


class HeatMap(LineView):
    """`show` sets the rows. The cursor moves over cells."""

    BINDINGS = bindings(in_scope("lines"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: tuple[HeatRow, ...] = ()
        self.scale: HeatScale = "load"
        self._plan = plan((), 80, 24)
        self._planned_for: tuple[object, ...] = ()
        self._row, self._gpu = 0, 0
        self._hovered: tuple[int, int] | None = None  # row and GPU position under the mouse
        self._segments: dict[tuple[HeatScale, bytes], Segment] = {}  # runs of equal levels as bars
        self._changed_by: dict[LineFilter, bool] = {}
        self._heads: dict[int, tuple[Status, tuple[Segment, Segment]]] = {}  # place: status, label and mark

    def show(self, rows: Sequence[HeatRow], scale: HeatScale, cursor: tuple[int, int] | None = None) -> None:
        """Show these rows; unchanged rows are not repainted. `cursor`: its new row and GPU position."""
        if scale != self.scale:
            self.scale = scale
            self.forget()
        self.rows = tuple(rows)
        self._row, self._gpu = cursor or (self._row, self._gpu)
        self._row = min(self._row, max(0, len(self.rows) - 1))
        self._arrange()
        self.changed()

    @property
    def selected(self) -> tuple[str, int] | None:
        """Node and GPU position under the cursor."""
        return (self.rows[self._row].node, self._gpu) if self.rows else None

    @property
    def is_at_first(self) -> bool:
        """Whether the cursor is on the first cell."""
        return (self._row, self._gpu) == (0, 0)

    @property
    def pointed(self) -> tuple[str, int] | None:
        """Node and GPU position under the mouse, else under the cursor if the map has the focus."""
        if self._hovered is not None and self._hovered[0] < len(self.rows):
            return self.rows[self._hovered[0]].node, self._hovered[1]
        return self.selected if self.has_focus else None

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Compute the layout if names, number of GPUs or size changed."""
        gpus = max((len(row.cells) for row in self.rows), default=0)
        wanted = (tuple(row.node for row in self.rows), gpus, self.size)
        if wanted != self._planned_for:
            self._planned_for = wanted
            self._plan = plan(self.rows, self.size.width - 1, self.size.height)  # one column is the scroll bar's
            self._heads.clear()
            self.forget()

    def line_count(self) -> int:
        """Number of lines."""
        return self._plan.lines

    def _places(self, y: int) -> list[int]:
        """Rows on line `y`; nodes are ordered column by column."""
        return list(range(y, len(self.rows), self._plan.lines)) if self._plan.lines else []

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        places = self._places(y)
        cursor = self._gpu if self._row in places and self.has_focus else None
        return self.scale, cursor, tuple(self.rows[place] for place in places)

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        spans: list[Span] = []
        for place in self._places(y):
            if spans:
                spans.append(Span(" " * GAP))
            spans.extend(self._node(place))
        return spans

    def _node(self, place: int) -> list[Span]:
        row, laid = self.rows[place], self._plan
        here = self.has_focus and place == self._row
        label = fit(laid.labels[place], laid.label - 2)
        mark = " " if row.status == "ok" else GLYPHS[row.status]
        spans = [Span(label, "strong" if here else "muted"), Span(f"{mark} ", row.status)]
        if not row.cells:
            return [*spans, Span(fit(row.note, laid.room), row.status)]
        for number, cell in enumerate(row.cells):
            style = self._style(row, cell, here and number == self._gpu)
            spans.append(Span(self._drawn(cell), style))
            if laid.cell > 1:
                spans.append(Span(cell.apart or " ", "warning"))
        return [*spans, Span(" " * (laid.room - len(row.cells) * laid.cell))]

    def drawn(self, y: int, width: int, selection: Selection | None) -> Strip:
        """Line `y` as a strip. Plain bars come from cached segments, because each has a style of its own."""
        laid, places = self._plan, self._places(y)
        if laid.cell > 1 or selection is not None or y >= laid.lines:
            return super().drawn(y, width, selection)
        segments: list[Segment] = []
        gap = Segment(" " * GAP, self.pen("text"))
        for place in places:
            if segments:
                segments.append(gap)
            row = self.rows[place]
            levels = self._plain_levels(row, place)
            if levels is None:
                segments.extend(Segment(span.text, self.pen(span.style)) for span in self._node(place))
                continue
            segments.extend(self._head(row, place))
            segments.extend(self._bars(levels))
            if laid.room > len(levels):
                segments.append(Segment(" " * (laid.room - len(levels)), self.pen("text")))
        taken = len(places) * (laid.node_width + GAP) - GAP
        if taken < width:
            segments.append(Segment(" " * (width - taken), self.pen("text")))
        strip = Strip(segments, max(taken, width))
        return strip if taken <= width else strip.crop(0, width)

    def _plain_levels(self, row: HeatRow, place: int) -> bytes | None:
        """Levels of a row that is drawn as bars only; else None."""
        if not row.cells or row.is_old or (place == self._row and self.has_focus):
            return None
        if any(map(_APART, row.cells)):
            return None
        return bytes([UNKNOWN_LEVEL if cell.level is None else cell.level for cell in row.cells])

    def _bars(self, levels: bytes) -> Iterator[Segment]:
        """One segment for each run of equal levels."""
        for run in _RUNS.findall(levels):
            segment = self._segments.get((self.scale, run))
            if segment is None:
                style = "unknown" if run[0] == UNKNOWN_LEVEL else f"ink {self.scale} {run[0]}"
                segment = self._segments[self.scale, run] = Segment(bar(run[0]) * len(run), self.pen(style))
            yield segment

    def _head(self, row: HeatRow, place: int) -> tuple[Segment, Segment]:
        head = self._heads.get(place)
        if head is None or head[0] != row.status:
            label = fit(self._plan.labels[place], self._plan.label - 2)
            mark = " " if row.status == "ok" else GLYPHS[row.status]
            pieces = Segment(label, self.pen("muted")), Segment(f"{mark} ", self.pen(row.status))
            head = self._heads[place] = row.status, pieces
        return head[1]

    def _drawn(self, cell: HeatCell) -> str:
        if self._plan.cell == 1:
            return cell.apart or bar(cell.level)
        return fit(cell.text, self._plan.cell - 1 - (self._plan.cell > 5), "right") + " " * (self._plan.cell > 5)

    def _style(self, row: HeatRow, cell: HeatCell, chosen: bool) -> str:
        if chosen:
            return "pick" if self._plan.cell == 1 else "badge"
        if row.is_old:
            return "stale"
        if cell.level is None:
            return "unknown"
        return f"{'ink' if self._plan.cell == 1 else 'fill'} {self.scale} {cell.level}"

    def _mixed(self, name: str, ground: str) -> Style:
        kind, _, rest = name.partition(" ")
        if kind not in ("ink", "fill"):
            return super()._mixed(name, ground)
        scale, _, level = rest.partition(" ")
        color = heat_colors(self.app.theme_variables[f"heat-{scale}"])[int(level)]
        if kind == "ink" or color.startswith("ansi_"):  # ANSI colours cannot be blended
            return self.base_style + Style(color=Color.parse(color).rich_color)
        return self.base_style + Style(bgcolor=tint(color, self.app.theme_variables["background"]))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The filters of the app that change a style of this widget; the others only cost time."""
        filters = super().get_line_filters()
        if not self.is_attached:  # painted once more while it is removed
            return filters
        return filters if self.text_selection is not None else [item for item in filters if self._is_changed_by(item)]

    def _is_changed_by(self, filter: LineFilter) -> bool:
        """Whether the filter changes any style of this widget."""
        is_changed = self._changed_by.get(filter)
        if is_changed is None:
            inks = [f"{kind} {scale} {level}" for kind in ("ink", "fill") for scale in get_args(HeatScale)
                    for level in range(LEVELS)]  # fmt: skip
            plain = [Segment(" ", self.pen(name)) for name in (*STYLES, *inks)]
            is_changed = self._changed_by[filter] = filter.apply(plain, self.background_colors[1]) != plain
        return is_changed

    def notify_style_update(self) -> None:
        """Repaint everything in the new theme."""
        super().notify_style_update()
        self._heads.clear()
        self._changed_by.clear()
        self._segments.clear()

    def stand(self, row: int, gpu: int) -> None:
        """Move the cursor to a cell."""
        if not self.rows:
            return
        self._row = min(max(row, 0), len(self.rows) - 1)
        self._gpu = min(max(gpu, 0), max(0, len(self.rows[self._row].cells) - 1))
        if self._plan.lines:
            self.show_line(self._row % self._plan.lines)
        self.changed()
        self.post_message(self.Moved(self))

    def step(self, by: int) -> None:
        """Move the cursor `by` nodes down."""
        self.stand(self._row + by, self._gpu)

    def action_right(self) -> None:
        beyond = self._row + self._plan.lines
        if self._gpu + 1 < len(self.rows[self._row].cells if self.rows else ()):
            self.stand(self._row, self._gpu + 1)
        elif beyond < len(self.rows):
            self.stand(beyond, 0)

    def action_left(self) -> None:
        if self._gpu > 0:
            self.stand(self._row, self._gpu - 1)
        elif self._row >= self._plan.lines:
            self.stand(self._row - self._plan.lines, self._plan.gpus - 1)

    def action_top(self) -> None:
        self.stand(0, 0)

    def action_bottom(self) -> None:
        self.stand(len(self.rows) - 1, self._gpu)

    @property
    def cursor_place(self) -> Offset | None:
        """Where the cell under the cursor is on the screen; None if it is scrolled away."""
        laid = self._plan
        if not laid.lines or self._row >= len(self.rows):
            return None
        column, line = divmod(self._row, laid.lines)
        first, last = self._visible()
        if not first <= line < last:
            return None
        x = column * (laid.node_width + GAP) + laid.label + self._gpu * laid.cell
        return self.content_region.offset + Offset(min(x, max(0, self.size.width - 1)), line - first)

    def _at(self, event: events.MouseEvent) -> tuple[int, int] | None:
        """Row and GPU position under the mouse; None outside of the nodes."""
        laid = self._plan
        column, x = divmod(event.x, laid.node_width + GAP)
        line = self.scroll_offset.y + event.y
        place = line + column * laid.lines
        if column >= laid.columns or line >= laid.lines or place >= len(self.rows):
            return None
        gpu = (x - laid.label) // laid.cell
        return place, min(max(gpu, 0), max(0, len(self.rows[place].cells) - 1))

    def on_click(self, event: events.Click) -> None:
        cell = self._at(event)
        if cell is None:
            return
        before = self.selected
        self.stand(*cell)
        if event.chain > 1 and before == self.selected:
            self.action_open()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._hover(self._at(event))

    def on_leave(self, event: events.Leave) -> None:
        self._hover(None)

    def _hover(self, cell: tuple[int, int] | None) -> None:
        if cell != self._hovered:
            self._hovered = cell
            self.post_message(self.Moved(self))


#: No full block: rows of busy GPUs would run into one.
BARS: Final = "▁▂▃▄▅▆▇"
#: Level of an unknown value.
UNKNOWN_LEVEL: Final = LEVELS
#: Share of the heat colour in the background of a number; more would make the text unreadable.
_TINT = 0.4
#: Runs of equal levels, one segment each.
_RUNS = re.compile(b"|".join(re.escape(bytes([level])) + b"+" for level in range(LEVELS + 1)), re.DOTALL)


def bar(level: int | None) -> str:
    """The bar character of a level."""
    return "·" if level is None or level == UNKNOWN_LEVEL else BARS[level * len(BARS) // LEVELS]


@lru_cache(16)
def heat_colors(stops: str) -> tuple[str, ...]:
    """The colour of each level, blended between stops given as "#rrggbb #rrggbb …"; ANSI colours are not blended."""
    if stops.startswith("ansi_"):
        named = stops.split()
        return tuple(named[level * len(named) // LEVELS] for level in range(LEVELS))
    colors = [Color.parse(stop) for stop in stops.split()]
    spans = list(pairwise(colors)) or [(colors[0], colors[0])]
    blended = []
    for level in range(LEVELS):
        position = level / (LEVELS - 1) * len(spans)
        span = min(int(position), len(spans) - 1)
        blended.append(spans[span][0].blend(spans[span][1], position - span).hex6.lower())
    return tuple(blended)


def tint(color: str, background: str) -> str:
    """Background of a number with that heat colour."""
    return Color.parse(background).blend(Color.parse(color), _TINT).hex6.lower()
