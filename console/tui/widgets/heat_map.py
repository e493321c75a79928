"""`HeatMap`: one cell a GPU, a row a node, as many columns of nodes as fit.

    node017   98  97 100  99  12  98  97  99     with room: the figure on its colour
    017  ▇▇▇▇▼▇▇▇  033✖ auth      049  ▇▇▇▇▇▇▇▇   without: a bar whose height says the same

A figure far from those of its peers has a ▼ or ▲: after it, or in the place of its bar.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

from rich.style import Style
from textual import events
from textual.color import Color

from ..keys import bindings, in_scope
from ..models.heat import LEVELS, Cell, HeatRow
from ..models.metrics import Scale
from ..models.spans import Span
from ..status import GLYPHS
from ..text import fit, width_of
from .line_view import LineView

#: No full block: rows of busy GPUs would run into one.
BARS = "▁▂▃▄▅▆▇"
_GAP = 2
#: Cells a figure takes, with one blank: the widest that fits is taken. A bar takes one.
_FIGURE_WIDTHS = (7, 6, 5, 4)
_BAR_WIDTH = 1
#: Cells for the words of a node without figures, where figures alone would leave less.
_NOTE_WIDTH = 8
#: How much of a figure's colour is in the ground it stands on: as much as leaves the text readable.
_TINT = 0.4


@dataclass(frozen=True)
class Plan:
    """How the rows are laid out: `columns` of nodes side by side over `lines`; `cell` cells a GPU, 1 for a bar."""

    labels: tuple[str, ...]
    columns: int
    lines: int
    label: int
    cell: int
    gpus: int

    @property
    def node_width(self) -> int:
        return self.label + self.room

    @property
    def room(self) -> int:
        """Cells right of the label."""
        return max(self.gpus * self.cell, _NOTE_WIDTH)


def plan(rows: Sequence[HeatRow], width: int, height: int) -> Plan:
    """The roomiest layout in which every row is on the screen; where none is, the densest, which scrolls."""
    names = tuple(row.node for row in rows)
    gpus = max((len(row.cells) for row in rows), default=1) or 1
    needed = max(1, -(-len(rows) // max(1, height)))  # columns without which rows do not fit
    for cell in (*_FIGURE_WIDTHS, _BAR_WIDTH):
        found = _plan(names, needed, cell, gpus)
        if found.columns * (found.node_width + _GAP) - _GAP <= width:
            return found
    short = _without_prefix(names)
    node_width = _plan(short, 1, _BAR_WIDTH, gpus).node_width
    return _plan(short, min(needed, max(1, (width + _GAP) // (node_width + _GAP))), _BAR_WIDTH, gpus)


def _plan(labels: tuple[str, ...], columns: int, cell: int, gpus: int) -> Plan:
    lines = -(-len(labels) // columns)
    longest = max((width_of(label) for label in labels), default=0)
    return Plan(labels, columns, lines, longest + 2, cell, gpus)  # the state's glyph, a blank


def _without_prefix(names: tuple[str, ...]) -> tuple[str, ...]:
    """`node017` → `017` where all names begin alike and what is left tells them apart."""
    heads = {re.sub(r"\d*$", "", name) for name in names}
    short = tuple(name.removeprefix(next(iter(heads), "")) for name in names)
    return short if len(heads) == 1 and all(short) else names


class HeatMap(LineView):
    """`show` gives it rows; it takes care of where they stand. The cursor walks over cells."""

    BINDINGS = bindings(in_scope("lines"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: tuple[HeatRow, ...] = ()
        self.scale: Scale = "load"
        self._plan = plan((), 80, 24)
        self._planned_for: tuple[object, ...] = ()
        self._row, self._gpu = 0, 0
        self._hovered: tuple[int, int] | None = None  # row and place under the mouse

    def show(self, rows: Sequence[HeatRow], scale: Scale) -> None:
        """Draw these rows; rows that are equal to the ones before are not painted again."""
        if scale != self.scale:
            self.scale = scale
            self.forget()
        self.rows = tuple(rows)
        self._row = min(self._row, max(0, len(self.rows) - 1))
        self._arrange()
        self.changed()

    @property
    def selected(self) -> tuple[str, int] | None:
        """The node and the place of the GPU among its GPUs under the cursor."""
        return (self.rows[self._row].node, self._gpu) if self.rows else None

    @property
    def pointed(self) -> tuple[str, int] | None:
        """What the mouse is over; else what is under the cursor, while the map has the focus."""
        if self._hovered is not None and self._hovered[0] < len(self.rows):
            return self.rows[self._hovered[0]].node, self._hovered[1]
        return self.selected if self.has_focus else None

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Lay out anew when the names, the number of GPUs or the room changed."""
        gpus = max((len(row.cells) for row in self.rows), default=0)
        wanted = (tuple(row.node for row in self.rows), gpus, self.size)
        if wanted != self._planned_for:
            self._planned_for = wanted
            self._plan = plan(self.rows, self.size.width - 1, self.size.height)  # one column is the scroll bar's
            self.forget()

    # -- painting ----------------------------------------------------------------------------------------------------

    def line_count(self) -> int:
        return self._plan.lines

    def _places(self, y: int) -> list[int]:
        """Rows on line `y`: names run down the columns."""
        places = range(y, len(self.rows), self._plan.lines) if self._plan.lines else range(0)
        return list(places)

    def version(self, y: int) -> Hashable:
        places = self._places(y)
        cursor = self._gpu if self._row in places and self.has_focus else None
        return self.scale, cursor, tuple(self.rows[place] for place in places)

    def line(self, y: int) -> Sequence[Span]:
        spans: list[Span] = []
        for place in self._places(y):
            if spans:
                spans.append(Span(" " * _GAP))
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
        is_plain = not here and row.status not in ("stale", "failed") and not any(cell.apart for cell in row.cells)
        if laid.cell == 1 and is_plain:
            spans.extend(_bars(self.scale, tuple(cell.level for cell in row.cells)))
            return [*spans, Span(" " * (laid.room - len(row.cells)))] if laid.room > len(row.cells) else spans
        for number, cell in enumerate(row.cells):
            style = self._style(row, cell, here and number == self._gpu)
            spans.append(Span(self._drawn(cell), style))
            if laid.cell > 1:
                spans.append(Span(cell.apart or " ", "warning"))
        return [*spans, Span(" " * (laid.room - len(row.cells) * laid.cell))]

    def _drawn(self, cell: Cell) -> str:
        if self._plan.cell == 1:
            return cell.apart or ("·" if cell.level is None else BARS[cell.level * len(BARS) // LEVELS])
        return fit(cell.text, self._plan.cell - 1 - (self._plan.cell > 5), "right") + " " * (self._plan.cell > 5)

    def _style(self, row: HeatRow, cell: Cell, chosen: bool) -> str:
        if chosen:
            return "pick" if self._plan.cell == 1 else "badge"
        if row.status in ("stale", "failed"):
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
        if kind == "ink" or color.startswith("ansi_"):  # the terminal's own colours cannot be mixed with a ground
            return self.rich_style + Style(color=Color.parse(color).rich_color)
        return self.rich_style + Style(bgcolor=tint(color, self.app.theme_variables["background"]))

    # -- moving ------------------------------------------------------------------------------------------------------

    def _stand(self, row: int, gpu: int) -> None:
        if not self.rows:
            return
        self._row = min(max(row, 0), len(self.rows) - 1)
        self._gpu = min(max(gpu, 0), max(0, len(self.rows[self._row].cells) - 1))
        if self._plan.lines:
            self.show_line(self._row % self._plan.lines)
        self.changed()
        self.post_message(self.Moved(self))

    def action_down(self) -> None:
        self._stand(self._row + 1, self._gpu)

    def action_up(self) -> None:
        self._stand(self._row - 1, self._gpu)

    def action_right(self) -> None:
        beyond = self._row + self._plan.lines
        if self._gpu + 1 < len(self.rows[self._row].cells if self.rows else ()):
            self._stand(self._row, self._gpu + 1)
        elif beyond < len(self.rows):
            self._stand(beyond, 0)

    def action_left(self) -> None:
        if self._gpu > 0:
            self._stand(self._row, self._gpu - 1)
        elif self._row >= self._plan.lines:
            self._stand(self._row - self._plan.lines, self._plan.gpus - 1)

    def action_page_down(self) -> None:
        self._stand(self._row + self.page, self._gpu)

    def action_page_up(self) -> None:
        self._stand(self._row - self.page, self._gpu)

    def action_top(self) -> None:
        self._stand(0, 0)

    def action_bottom(self) -> None:
        self._stand(len(self.rows) - 1, self._gpu)

    def action_open(self) -> None:
        if self.rows:
            self.post_message(self.Opened(self))

    def _at(self, event: events.MouseEvent) -> tuple[int, int] | None:
        """The row and the place of the cell at the mouse; None where no node is drawn."""
        laid = self._plan
        column, x = divmod(event.x, laid.node_width + _GAP)
        line = self.scroll_offset.y + event.y
        place = line + column * laid.lines
        if column >= laid.columns or line >= laid.lines or place >= len(self.rows):
            return None
        gpu = (x - laid.label) // laid.cell
        return place, min(max(gpu, 0), max(0, len(self.rows[place].cells) - 1))

    def on_click(self, event: events.Click) -> None:
        at = self._at(event)
        if at is None:
            return
        before = self.selected
        self._stand(*at)
        if event.chain > 1 and before == self.selected:
            self.action_open()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._hover(self._at(event))

    def on_leave(self, event: events.Leave) -> None:
        self._hover(None)

    def _hover(self, at: tuple[int, int] | None) -> None:
        if at != self._hovered:
            self._hovered = at
            self.post_message(self.Moved(self))


@lru_cache(16_384)
def _bars(scale: Scale, levels: tuple[int | None, ...]) -> tuple[Span, ...]:
    """The bars of one node: equal neighbours, of which a busy fleet has many, are one span."""
    spans = []
    for level, same in groupby(levels):
        count = sum(1 for _ in same)
        if level is None:
            spans.append(Span("·" * count, "unknown"))
        else:
            spans.append(Span(BARS[level * len(BARS) // LEVELS] * count, f"ink {scale} {level}"))
    return tuple(spans)


def heat_colors(stops: str) -> list[str]:
    """The colours of all levels, between stops given as "#rrggbb #rrggbb …"; the terminal's own are not mixed."""
    if stops.startswith("ansi_"):
        named = stops.split()
        return [named[level * len(named) // LEVELS] for level in range(LEVELS)]
    colors = [Color.parse(stop) for stop in stops.split()]
    spans = list(pairwise(colors)) or [(colors[0], colors[0])]
    found = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * len(spans)
        span = min(int(at), len(spans) - 1)
        found.append(spans[span][0].blend(spans[span][1], at - span).hex6.lower())
    return found


def tint(color: str, background: str) -> str:
    """The ground a figure of that colour stands on."""
    return Color.parse(background).blend(Color.parse(color), _TINT).hex6.lower()
