"""How a heat map lays out its rows: figures where there is room for them, bars where there is not, in columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...text.cells import width_of
from ..models.heat_map import HeatRow

#: Cells between two columns of nodes.
GAP: Final = 2
#: Cells a figure takes, with one blank: the widest that fits is taken. A bar takes one.
_FIGURE_WIDTHS = (7, 6, 5, 4)
_BAR_WIDTH = 1
#: Cells for the words of a node without figures, where figures alone would leave less.
_NOTE_WIDTH = 8


@dataclass(frozen=True)
class HeatLayout:
    """How the rows are laid out: `columns` of nodes side by side over `lines`; `cell` cells a GPU, 1 for a bar."""

    labels: tuple[str, ...]
    columns: int
    lines: int
    label: int
    cell: int
    gpus: int

    @property
    def node_width(self) -> int:
        """Cells of one node."""
        return self.label + self.room

    @property
    def room(self) -> int:
        """Cells right of the label."""
        return max(self.gpus * self.cell, _NOTE_WIDTH)


def plan(rows: Sequence[HeatRow], width: int, height: int) -> HeatLayout:
    """The roomiest layout in which every row is on the screen; where none is, the densest, which scrolls."""
    names = tuple(row.node for row in rows)
    gpus = max((len(row.cells) for row in rows), default=1) or 1
    needed = max(1, -(-len(rows) // max(1, height)))  # columns without which rows do not fit
    for cell in (*_FIGURE_WIDTHS, _BAR_WIDTH):
        found = _plan(names, needed, cell, gpus)
        if found.columns * (found.node_width + GAP) - GAP <= width:
            return found
    short = _without_prefix(names)
    node_width = _plan(short, 1, _BAR_WIDTH, gpus).node_width
    return _plan(short, min(needed, max(1, (width + GAP) // (node_width + GAP))), _BAR_WIDTH, gpus)


def _plan(labels: tuple[str, ...], columns: int, cell: int, gpus: int) -> HeatLayout:
    lines = -(-len(labels) // columns)
    longest = max((width_of(label) for label in labels), default=0)
    return HeatLayout(labels, columns, lines, longest + 2, cell, gpus)  # the state's glyph, a blank


def _without_prefix(names: tuple[str, ...]) -> tuple[str, ...]:
    """`node017` → `017` where all names begin alike and what is left tells them apart."""
    heads = {re.sub(r"\d*$", "", name) for name in names}
    short = tuple(name.removeprefix(next(iter(heads), "")) for name in names)
    return short if len(heads) == 1 and all(short) else names
